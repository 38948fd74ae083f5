"""The programs of the cluster: built once from the Go modules in ../binaries into a cache outside the checkout.

One cache folder per module, named by a hash over all that decides what comes out, so a changed pin builds anew and
an unchanged one never does. Each program is renamed into place when it is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster.harness.errors import MissingError

SOURCES = Path(__file__).resolve().parent.parent / "binaries"

MODULES = {
    "kubernetes": ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "kwok": ("kwok",),
    "helm": ("helm",),
    "prometheus": ("promtool",),
    "pause": ("pause",),
}
# What is published as a program alone is named in go.mod as a tool, and built with these tags: without them promtool
# brings the clients of thirty clouds.
TOOL_TAGS = {"prometheus": "remove_all_sd"}
# Without kwok, helm and promtool a cluster starts: tests of scale want played nodes, those of the chart the others.
NEEDED_MODULES = ("kubernetes", "containerd", "pause")
# The three that envtest's convention may bring along instead.
ASSETS = ("etcd", "kube-apiserver", "kubectl")

GO_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
# Static, and the same with and without a C compiler; no toolchain is fetched behind our back.
GO_ENV = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
BUILD_MINUTES = 14  # cold, 2 cores: 11 measured before promtool, which took 6 beside much other work


def cache_root() -> Path:
    """Where everything that is built once and kept lies."""
    given = os.environ.get("ALIQUOT_CACHE")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(cache) / "aliquot"


def folder_of(module: str) -> Path:
    """The cache folder of a module as it stands in this checkout."""
    digest = hashlib.sha256(repr((GO_FLAGS, GO_ENV)).encode())
    for source in sorted((SOURCES / module).rglob("*")):
        if source.is_file():
            digest.update(f"{source.relative_to(SOURCES)}\0".encode() + source.read_bytes())
    digest.update(TOOL_TAGS.get(module, "").encode())
    return cache_root() / "kubernetes" / f"{module}-{digest.hexdigest()[:16]}"


def module_of(program: str) -> str:
    """Which module a program comes from."""
    return next(module for module, programs in MODULES.items() if program in programs)


def find(program: str) -> Path | None:
    """The program's file, or None if it is not built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and program in ASSETS and (Path(assets) / program).exists():
        return Path(assets) / program
    built = folder_of(module_of(program)) / program
    return built if built.exists() else None


def path_of(program: str) -> Path:
    """The program's file; it must be built."""
    found = find(program)
    if found is None:
        raise MissingError(f"{program} is not built: run tests/cluster/binaries/build {module_of(program)}")
    return found


def not_built(modules: Sequence[str] = NEEDED_MODULES) -> list[str]:
    """The programs that these modules still have to build."""
    return [program for module in modules for program in MODULES[module] if find(program) is None]


def build(modules: Sequence[str] = tuple(MODULES)) -> None:
    """Build what is missing, one module after another, and say so."""
    for module in modules:
        with _only_one_builds():
            missing = not_built([module])
            if not missing:
                say(f"{module}: built already")
                continue
            say(f"{module}: building {', '.join(missing)} …")
            began = time.monotonic()
            _build_into(folder_of(module), module, missing)
            say(f"{module}: built in {time.monotonic() - began:.0f} s")


def _build_into(folder: Path, module: str, programs: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as partial:
        if module == "pause":
            source = SOURCES / "pause" / "pause.c"
            _run(["gcc", "-Os", "-static", "-s", "-o", f"{partial}/pause", str(source)], cwd=SOURCES)
        else:
            mains = ["tool"] if module in TOOL_TAGS else [f"./{program}" for program in programs]
            flags = [*GO_FLAGS, f"-tags={TOOL_TAGS.get(module, '')}", f"-ldflags={_linker_flags(module)}"]
            _run(["nice", "go", "build", *flags, "-o", f"{partial}/", *mains], cwd=SOURCES / module)
        for program in programs:
            (Path(partial) / program).rename(folder / program)


def _linker_flags(module: str) -> str:
    """Small binaries, and the version that Kubernetes' own build would stamp into them."""
    flags = "-s -w"
    stated = re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)", (SOURCES / module / "go.mod").read_text())
    if stated:
        version, major, minor = stated.groups()
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += f" -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    return flags


def _run(argv: Sequence[str], *, cwd: Path) -> None:
    if shutil.which(argv[0]) is None:
        raise MissingError(f"{argv[0]} is not installed")
    done = subprocess.run(argv, cwd=cwd, env={**os.environ, **GO_ENV}, check=False)
    if done.returncode:
        raise MissingError(f"{' '.join(argv[:3])} … ended with {done.returncode} in {cwd}")


@contextmanager
def _only_one_builds() -> Iterator[None]:
    """Two builds at once would only do the same work twice."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "building.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """Tell the person who waits."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Build the modules named (default: all) and print their folders."""
    modules = tuple(arguments) or tuple(MODULES)
    if unknown := set(modules) - set(MODULES):
        say(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
        return 2
    try:
        build(modules)
    except MissingError as error:
        say(f"cannot build: {error}")
        return 1
    for module in modules:
        sys.stdout.write(f"{folder_of(module)}\n")
    return 0
