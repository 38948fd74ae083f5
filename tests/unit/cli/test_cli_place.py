"""How a command for people finds its API server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot_cli.cluster import NoServerError, find_place
from aliquot_kube.plain import PlainServer, plain_server
from aliquot_standalone.apiserver.embedded import kubeconfig
from aliquot_standalone.home import Home

URL = "http://127.0.0.1:1"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user without anything."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return {"ALIQUOT_HOME": str(tmp_path / "state")}


def start_up(environment: dict[str, str]) -> Home:
    """Say that this very process is an `aliquot up`."""
    home = Home.of("", environment=environment)
    home.create()
    home.kubeconfig.write_text(json.dumps(kubeconfig(URL)))
    home.announce(api=URL, page="", now=0.0)
    return home


def test_what_is_named_comes_before_what_runs_here(environment: dict[str, str]) -> None:
    """A flag, then the variable, and only then the `aliquot up` of this user."""
    home = start_up(environment)
    assert find_place(kubeconfig="a", environment={**environment, "KUBECONFIG": "b"}).kubeconfig == "a"
    assert find_place(environment={**environment, "KUBECONFIG": "b"}).kubeconfig == "b"
    assert find_place(environment=environment).kubeconfig == str(home.kubeconfig)


def test_a_context_means_a_cluster(environment: dict[str, str], tmp_path: Path) -> None:
    """`--context` is of the user's kubeconfig, never of the `aliquot up` that happens to run."""
    start_up(environment)
    usual = tmp_path / ".kube" / "config"
    usual.parent.mkdir()
    usual.write_text("{}")
    place = find_place(context="far", environment=environment)
    assert (place.kubeconfig, place.context, place.up) == (str(usual), "far", None)


def test_the_up_is_known_by_its_kubeconfig_too(environment: dict[str, str]) -> None:
    """Who names its kubeconfig gets what `aliquot up` alone can do."""
    home = start_up(environment)
    named = find_place(kubeconfig=str(home.kubeconfig), environment=environment)
    assert named.up is not None
    assert named.up.api == URL


def test_one_that_has_ended_is_not_asked(environment: dict[str, str]) -> None:
    """Its kubeconfig may lie there still; the user is told how to go on."""
    home = start_up(environment)
    home.retract()
    with pytest.raises(NoServerError, match="no `aliquot up` runs"):
        find_place(environment=environment)


def write(folder: Path, config: object) -> Path:
    """A kubeconfig."""
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def test_a_plain_kubeconfig_needs_no_loader(tmp_path: Path) -> None:
    """Address, token and namespace are read as they are written."""
    plain = plain_server(write(tmp_path, kubeconfig(URL, token="t")))
    assert plain == PlainServer(url=URL, token="t", namespace="default")


def test_another_context_is_found(tmp_path: Path) -> None:
    """Not the current one, where another is asked for; one that is not there is left to the loader to complain of."""
    config = kubeconfig(URL)
    config["contexts"].append({"name": "b", "context": {"cluster": "aliquot", "user": "aliquot", "namespace": "team"}})
    path = write(tmp_path, config)
    other = plain_server(path, context="b")
    assert other is not None
    assert other.namespace == "team"
    assert plain_server(path, context="c") is None


@pytest.mark.parametrize(
    "config",
    [
        "not a kubeconfig",
        {**kubeconfig("https://127.0.0.1:1", token="t")},
        {**kubeconfig(URL), "users": [{"name": "aliquot", "user": {"exec": {"command": "x"}}}]},
        {**kubeconfig(URL), "users": [{"name": "aliquot", "user": {"token": "t", "as": "eve"}}]},
        {**kubeconfig(URL), "clusters": [{"name": "aliquot", "cluster": {"server": URL, "proxy-url": "http://x"}}]},
    ],
)
def test_whatever_says_more_is_left_to_the_loader(tmp_path: Path, config: object) -> None:
    """What is passed over here would be done wrongly: as another user, past a proxy, without TLS."""
    assert plain_server(write(tmp_path, config)) is None


def test_a_run_imports_little_before_it_asks() -> None:
    """Neither agent nor centre, no hashes, not what follows the pod: each is time that a run adds to its program."""
    heavy = (
        "aliquot_agent aliquot_scheduler.page aliquot_deviceplugin hashlib ctypes numpy kubernetes yaml grpc"
        " aliquot_cli.attending aliquot_kube.client aliquot_kube.mirror aliquot_core.objects"
    )
    probe = f"import sys, aliquot_cli.run; print(*({{*sys.modules}} & {{*{heavy.split()!r}}}))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
