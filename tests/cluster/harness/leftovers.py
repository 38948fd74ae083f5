"""Find and end everything that belongs to one cluster, and nothing else.

A process belongs to a cluster if its environment carries the cluster's mark (control plane, agents) or if one of its
mounts comes from the cluster's work folder (everything on a node, and every container). Containers outlive kubelet,
containerd and shim in mount namespaces of their own, so their mounts are the only thing that still tells. A process in
our own mount namespace never counts by its mounts: if a node's ever leaked out of it, that would be the whole machine.

Run as a program, this is the guardian: it waits until the harness lets go of the pipe, by stopping or by being killed,
and then sweeps what is left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MARK = "ALIQUOT_TEST_CLUSTER"
FOLDER_PREFIX = "aliquot-cluster-"
NODES = "nodes"
CGROUPS = Path("/sys/fs/cgroup")


def make_folder() -> tuple[Path, IO[bytes]]:
    """Make a work folder; it is owned as long as the returned file stays open, also across process-id namespaces."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    folder.chmod(0o755)  # containers that run as other users pass through it
    owner = (folder / "new-owner").open("wb")
    fcntl.flock(owner, fcntl.LOCK_EX)
    (folder / "new-owner").rename(folder / "owner")  # nobody ever sees it unlocked
    return folder, owner


def abandoned_folders() -> Iterator[Path]:
    """Work folders whose harness is gone, guardian included."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        try:
            with (folder / "owner").open("rb") as owner:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # owned, or being made or swept by somebody else just now
        yield folder


def belongs(pid: int, folder: Path) -> bool:
    """Whether the live process is of the cluster in this folder, or of the node if it is a node's."""
    process = Path("/proc") / str(pid)
    try:
        elsewhere = (process / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        if elsewhere and _as_mounted(folder) in (process / "mountinfo").read_bytes():
            return True
        return f"{MARK}={folder}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended meanwhile, or is a zombie
        return False


def _as_mounted(folder: Path) -> bytes:
    """The end of the folder's path: mountinfo tells it from the root of whatever file system holds it."""
    parts = folder.parts
    start = next(index for index, part in enumerate(parts) if part.startswith(FOLDER_PREFIX))
    return "/".join((*parts[start:], "")).encode()


def processes_of(folder: Path) -> list[int]:
    """The ids of all live processes of the cluster in this folder."""
    own = os.getpid()
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != own and belongs(pid, folder)]


def end_processes(folder: Path, *, timeout: float = 20) -> None:
    """Kill every process of the cluster until none is left."""
    deadline = time.monotonic() + timeout
    while pids := processes_of(folder):
        for pid in pids:
            _kill(pid, folder)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} of {folder} do not end")
        time.sleep(0.01)


def _kill(pid: int, folder: Path) -> None:
    """Kill through a pidfd, asked once more after opening it: an id that was used again must not be hit."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if belongs(pid, folder):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def end_node(folder: Path) -> None:
    """End all processes of the node in this folder and remove its cgroups; its mounts end with its processes."""
    containers = [path.name for path in folder.glob("run/containerd/io.containerd.runtime.v2.task/k8s.io/*")]
    end_processes(folder)
    # v1 has a tree per controller, v2 one; a runtime that was killed removes none of them.
    cgroups = [parent / "k8s.io" / name for parent in (CGROUPS, *CGROUPS.glob("*/")) for name in containers]
    _remove_cgroups([cgroup for cgroup in cgroups if cgroup.exists()])


def sweep(folder: Path) -> None:
    """End all that is left of a cluster and remove its folder."""
    for node in folder.glob(f"{NODES}/*"):
        end_node(node)
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_cgroups(cgroups: list[Path], *, timeout: float = 5) -> None:
    """Remove them as soon as the machine's first process has taken the exit codes of those who died in them."""
    deadline = time.monotonic() + timeout
    while cgroups and time.monotonic() < deadline:
        cgroups = [cgroup for cgroup in cgroups if not _removed(cgroup)]
        time.sleep(0.01 if cgroups else 0)


def _removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def start_guardian(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that sweeps the folder as soon as we are gone, however that happens."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def guard(folder: Path) -> None:
    """Wait for the end of the pipe, then sweep."""
    sys.stdin.buffer.read()
    sweep(folder)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
