"""The small file system on which accounts lie: what a tenant takes by making his larger is no room of the node's disk.

The kernel lets whoever may write a file make it larger, and the agent cuts it back a tenth of a second later. So who
may mount, a container that runs before the agent, once mounts a tmpfs of a bounded size at the folder; it outlives
agents, and containers mount their files from it. What no file of ours takes there a *filling* takes, a file that no
container sees: a tenant finds nothing left to take, and other containers can still start, for the agent takes of the
filling what their files need. What is lent to a start is all that may be lost to a tenant, until the next one.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from aliquot_core.errors import ClusterError

FILLING = ".filling"
# A file system that somebody made larger holds more than accounts: it is not ours to fill.
_MOST_FILLED = 1 << 30
_MOUNTS = Path("/proc/self/mountinfo")
_NOSUID, _NODEV, _DETACH = 2, 4, 2
# How mountinfo writes blanks and backslashes.
_OCTAL = re.compile(r"\\([0-7]{3})")


class RoomError(ClusterError):
    """The folder of accounts can't be given a file system of its own."""


class Mounted(msgspec.Struct, frozen=True):
    """What is mounted at a folder: from which folder of its file system, and of which kind that is."""

    root: str
    kind: str


def mounted_at(folder: Path, mounts: str) -> Mounted | None:
    """What lies at a folder by the text of /proc/self/mountinfo: what was mounted last hides what was before. Pure."""
    found = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        _, _, _, root, place, *_ = before.split(" ")
        if _OCTAL.sub(lambda code: chr(int(code[1], 8)), place) == str(folder):
            found = Mounted(root, after.split(" ")[0])
    return found


def is_bounded(folder: Path) -> bool:
    """Whether a folder is a file system of its own; one of the node's disk that a container mounts is a part of it."""
    found = mounted_at(folder, _MOUNTS.read_text())
    return found is not None and found.root == "/"


def make_room(folder: Path, *, mib: int, in_use: bool) -> str:
    """Mount a tmpfs at the folder, unless something lies there already; what became of it. Needs CAP_SYS_ADMIN.

    Containers that run (`in_use`) have their files in the folder as it is: under another one the agent would lose them.
    """
    if is_bounded(folder):
        return f"{folder} is a file system of its own already"
    if in_use:
        return f"{folder} has files of containers that run, and stays on the node's disk until this runs without them"
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={mib}m,mode=0755"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"aliquot", os.fsencode(folder), b"tmpfs", _NOSUID | _NODEV, options.encode()) < 0:
        raise RoomError(f"can't be mounted: {os.strerror(ctypes.get_errno())}", where=str(folder))
    return f"{folder} is a file system of {mib} MiB"


def take_room_away(folder: Path) -> str:
    """Unmount it; containers that run keep what they mounted from it, and their memory is free when they end."""
    found = mounted_at(folder, _MOUNTS.read_text())
    if found != Mounted("/", "tmpfs"):
        return f"{folder} is no tmpfs: nothing to take away"
    libc = ctypes.CDLL(None, use_errno=True)
    (folder / FILLING).unlink(missing_ok=True)
    if libc.umount2(os.fsencode(folder), _DETACH) < 0:
        raise RoomError(f"can't be unmounted: {os.strerror(ctypes.get_errno())}", where=str(folder))
    return f"{folder} is unmounted"


class Filling:
    """The file that takes whatever is free of a file system that holds accounts and nothing else."""

    def __init__(self, folder: Path) -> None:
        """`folder` may be any: one that is not bounded, or larger than such a one is made, is not filled."""
        self._folder = folder
        self._path = folder / FILLING
        # Containers start in several threads: what is lent to one is not to be filled by another.
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, size: int) -> Iterator[None]:
        """So many bytes are free meanwhile, if the filling has them."""
        with self._lock:
            if self._path.exists():
                os.truncate(self._path, max(0, self._path.stat().st_size - size))
            try:
                yield
            finally:
                # What can't be filled now is filled after the next start.
                with suppress(OSError):
                    self._fill()

    def fill(self) -> None:
        """Take whatever is free."""
        with self.lent(0):
            pass

    def give_back(self) -> None:
        """Free all that it took: no accounts are kept here any more."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _fill(self) -> None:
        room = os.statvfs(self._folder)
        if room.f_blocks * room.f_frsize > _MOST_FILLED or not is_bounded(self._folder):
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size, free = os.fstat(descriptor).st_size, os.statvfs(self._folder).f_bavail * room.f_frsize
            if free:
                os.posix_fallocate(descriptor, size, free)
        finally:
            os.close(descriptor)
