"""What the real Kubernetes of tests/cluster asks of a machine, and where it keeps what was built."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from cluster.harness import binaries, requirements
from cluster.harness.errors import MissingError
from support.require import skip_or_fail


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which nothing is built."""
    monkeypatch.setenv("ALIQUOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "cache"


@pytest.mark.usefixtures("empty_cache")
def test_what_the_machine_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without any of the tools the reason names each, and the script that installs them."""
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = requirements.why_not()
    for missing in ("mount namespaces", "nsenter", "runc with seccomp", "a static busybox", "openssl"):
        assert missing in reason
    assert "tests/cluster/requirements" in reason


@pytest.mark.usefixtures("empty_cache")
def test_what_is_not_built_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all tools there and nothing built, the reason names the programs and what builds them."""
    monkeypatch.setattr(requirements, "TO_RUN", ())
    assert "kubelet" in requirements.why_not()
    assert "tests/cluster/binaries/build" in requirements.why_not()


@pytest.mark.usefixtures("empty_cache")
def test_assets_of_envtest_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where KUBEBUILDER_ASSETS has an API server, it is not built; the kubelet is none of its programs."""
    for name in ("kube-apiserver", "kubelet"):
        (tmp_path / name).touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert binaries.path_of("kube-apiserver") == tmp_path / "kube-apiserver"
    assert "kube-apiserver" not in binaries.not_built()
    assert "kubelet" in binaries.not_built()


def test_a_changed_pin_is_another_folder(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module's cache folder follows from its sources: the same for the same, another for any change."""
    sources = tmp_path / "sources"
    shutil.copytree(binaries.SOURCES, sources)
    before = {module: binaries.folder_of(module) for module in binaries.MODULES}
    monkeypatch.setattr(binaries, "SOURCES", sources)
    assert {module: binaries.folder_of(module) for module in binaries.MODULES} == before
    with (sources / "kwok" / "go.sum").open("a") as sums:
        sums.write("\n")
    changed = {module for module in binaries.MODULES if binaries.folder_of(module) != before[module]}
    assert changed == {"kwok"}
    assert before["kwok"].is_relative_to(empty_cache)


def test_failed_build_leaves_no_program(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that fails says so and leaves nothing that could be taken for a program."""
    monkeypatch.setattr(binaries, "_run", _fail)
    assert binaries.main(["pause"]) == 1
    assert [path for path in empty_cache.rglob("*") if path.name == "pause"] == []


def test_unknown_module_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A module that does not exist is named, with those that do."""
    assert binaries.main(["kubernets"]) == 2
    assert "unknown: kubernets; there are kubernetes" in capsys.readouterr().err


def test_dynamic_program_is_told_from_a_static_one() -> None:
    """An ELF file that names a loader is not static, as the Python that runs this is not."""
    assert requirements._asks_for_loader(Path(sys.executable).read_bytes())


def test_skip_is_a_failure_where_the_part_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ALIQUOT_REQUIRE names may not be skipped; everything else is skipped with its reason."""
    monkeypatch.setenv("ALIQUOT_REQUIRE", "native, cluster")
    with pytest.raises(pytest.fail.Exception, match="names 'cluster', but there is no runc"):
        skip_or_fail("cluster", "there is no runc")
    with pytest.raises(pytest.skip.Exception, match="gpu: none here"):
        skip_or_fail("gpu", "none here")


def _fail(*_: object, **__: object) -> None:
    raise MissingError("gcc is not installed")
