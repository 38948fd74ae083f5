"""The CDI folder of a node: files in memory that outlive processes, not reboots; full or unreadable on command."""

from __future__ import annotations

import errno
import os

from simulation.universe.life import Life


class Disk:
    """What lies in the folder."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.full = False
        self.unreadable = False

    def wipe(self) -> None:
        """A reboot empties /var/run."""
        self.files.clear()


class DiskOf:
    """The folder as one process uses it; before each change of it the process may die."""

    def __init__(self, disk: Disk, life: Life) -> None:
        self._disk = disk
        self._life = life

    def __str__(self) -> str:
        return "/var/run/cdi"

    def files(self) -> list[str]:
        """Names, in the order in which they came."""
        self._life.act("list")
        self._check_readable()
        return list(self._disk.files)

    def read(self, file: str) -> bytes | None:
        """The whole content."""
        self._check_readable()
        return self._disk.files.get(file)

    def write(self, file: str, content: bytes) -> None:
        """Write; a full disk takes the file and not the content."""
        self._life.act(f"write {file}")
        if self._disk.full:
            self._disk.files[file] = content[:10]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._disk.files[file] = content

    def rename(self, file: str, to: str) -> None:
        """Move within the folder."""
        self._life.act(f"rename to {to}")
        self._disk.files[to] = self._disk.files.pop(file)

    def remove(self, file: str) -> bool:
        """Remove, if it is there."""
        self._life.act(f"remove {file}")
        return self._disk.files.pop(file, None) is not None

    def _check_readable(self) -> None:
        if self._disk.unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
