"""What this machine needs for a real Kubernetes, and how to get it where Debian's packages can give it."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.harness import binaries

BUSYBOX = "busybox"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One thing that must be there: how to see whether it is, and the Debian packages that bring it."""

    what: str
    met: Callable[[], bool]
    packages: tuple[str, ...] = ()


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _has_runc_with_seccomp() -> bool:
    """Without libseccomp runc refuses every pod that is not privileged; `go install` builds it without."""
    return "libseccomp" in _output("runc", "--version")


def _has_static_busybox() -> bool:
    """Images hold nothing but busybox, so it must not need libraries."""
    found = shutil.which(BUSYBOX)
    return found is not None and not _asks_for_loader(Path(found).read_bytes())


def _asks_for_loader(program: bytes) -> bool:
    """Whether a 64-bit ELF file has a PT_INTERP header, which names the dynamic loader."""
    table, size, count = (*struct.unpack_from("<Q", program, 32), *struct.unpack_from("<HH", program, 54))
    kinds = [struct.unpack_from("<I", program, table + index * size)[0] for index in range(count)]
    return 3 in kinds


def _may_make_mount_namespaces() -> bool:
    return shutil.which("unshare") is not None and bool(_output("unshare", "--mount", "echo", "yes"))


def _go_wanted() -> tuple[int, ...]:
    """The newest Go that one of our modules asks for."""
    stated = [re.search(r"^go (\S+)$", path.read_text(), re.MULTILINE) for path in binaries.SOURCES.glob("*/go.mod")]
    return max(_version(found[1]) for found in stated if found)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _has_go() -> bool:
    return _version(_output("go", "env", "GOVERSION")) >= _go_wanted()


TO_RUN = (
    Requirement(what="Linux and root", met=lambda: sys.platform == "linux" and os.geteuid() == 0),
    Requirement(
        what="the right to make mount namespaces (unshare --mount)",
        met=_may_make_mount_namespaces,
        packages=("util-linux",),
    ),
    Requirement(what="nsenter", met=lambda: shutil.which("nsenter") is not None, packages=("util-linux",)),
    Requirement(what="runc with seccomp", met=_has_runc_with_seccomp, packages=("runc",)),
    Requirement(what="a static busybox", met=_has_static_busybox, packages=("busybox-static",)),
    Requirement(what="openssl", met=lambda: shutil.which("openssl") is not None, packages=("openssl",)),
)
TO_BUILD = (
    Requirement(what="gcc", met=lambda: shutil.which("gcc") is not None, packages=("gcc", "libc6-dev")),
    Requirement(what=f"Go >= {'.'.join(map(str, _go_wanted()))}", met=_has_go),
)


def unmet(requirements: Sequence[Requirement]) -> list[Requirement]:
    """Those that this machine does not meet."""
    return [requirement for requirement in requirements if not requirement.met()]


def why_not() -> str:
    """Why no cluster can run here, in one line; empty if one can."""
    missing = [requirement.what for requirement in unmet(TO_RUN)]
    if missing:
        return f"this machine lacks {', '.join(missing)} (tests/cluster/requirements installs what it can)"
    if not_built := binaries.not_built():
        minutes = binaries.BUILD_MINUTES
        return f"not built: {', '.join(not_built)} (tests/cluster/binaries/build, once, about {minutes} minutes)"
    return ""


def install(requirements: Sequence[Requirement]) -> None:
    """Install what Debian's packages bring for the unmet ones."""
    packages = sorted({package for requirement in requirements for package in requirement.packages})
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    binaries.say(f"installing {' '.join(packages)} …")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=env, check=False)
    quiet = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(quiet, env=env, stdout=subprocess.DEVNULL, check=False)


def main() -> int:
    """Install what is missing; fail, naming it, if something still is."""
    everything = (*TO_RUN, *TO_BUILD)
    install(unmet(everything))
    missing = unmet(everything)
    for requirement in missing:
        binaries.say(f"missing: {requirement.what}")
    if not missing:
        binaries.say("everything that tests/cluster needs is here")
    return 1 if missing else 0
