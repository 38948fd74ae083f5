"""The node's files as the agent reads them, through one narrow door that tests can put a node of their own behind.

In a container the node's root is mounted somewhere else, and a driver container's root lies below that again. Links on
the node mean the node's paths, so following them is done here and not by the kernel, which would follow an absolute
link out of the mounted root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

# As the kernel has it.
MOST_LINKS = 40


class FileKind(StrEnum):
    """What a path is, links not followed."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    DEVICE = "device"
    SOCKET = "socket"
    OTHER = "other"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of a path without opening it; the stamp changes when the content does."""

    kind: FileKind
    target: str = ""
    stamp: tuple[int, ...] = ()


class NodeFiles(Protocol):
    """A tree of files, by absolute paths inside it."""

    def look(self, path: str) -> Look | None:
        """What a path is, not following it if it is a link; None if there is nothing."""
        ...

    def read(self, path: str, *, limit: int) -> bytes:
        """The first bytes of a file; raises OSError."""
        ...

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, sorted; nothing if it is none."""
        ...


class RootedFiles:
    """The tree under one folder of this machine; what the kernel tells of drivers is the same in every container."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = str(root).rstrip("/")

    def _at(self, path: str) -> str:
        return path if f"{path}/".startswith("/proc/driver/") else self._root + path

    def look(self, path: str) -> Look | None:
        """What can't be looked at is not there for us."""
        try:
            seen = os.lstat(self._at(path))
            target = str(Path(self._at(path)).readlink()) if stat.S_ISLNK(seen.st_mode) else ""
        except OSError:
            return None
        return Look(kind=_kind(seen.st_mode), target=target, stamp=(seen.st_mtime_ns, seen.st_size, seen.st_ino))

    def read(self, path: str, *, limit: int) -> bytes:
        """Never more than the limit, whatever size the file claims."""
        with Path(self._at(path)).open("rb") as opened:
            return opened.read(limit)

    def names(self, folder: str) -> list[str]:
        """An unreadable folder holds nothing that could be used."""
        try:
            return sorted(entry.name for entry in Path(self._at(folder)).iterdir())
        except OSError:
            return []


class RememberedFiles:
    """The same tree at one instant: each path is looked at once, which makes 100 paths with common parents cheap."""

    def __init__(self, files: NodeFiles) -> None:
        self._files = files
        self._seen: dict[str, Look | None] = {}

    def look(self, path: str) -> Look | None:
        """As it was when it was first looked at."""
        if path not in self._seen:
            self._seen[path] = self._files.look(path)
        return self._seen[path]

    def read(self, path: str, *, limit: int) -> bytes:
        """Not remembered."""
        return self._files.read(path, limit=limit)

    def names(self, folder: str) -> list[str]:
        """Not remembered."""
        return self._files.names(folder)


class SubtreeFiles:
    """What lies below one folder, as a tree of its own."""

    def __init__(self, files: NodeFiles, *, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def look(self, path: str) -> Look | None:
        """Below the folder."""
        return self._files.look(self._root + path)

    def read(self, path: str, *, limit: int) -> bytes:
        """Below the folder."""
        return self._files.read(self._root + path, limit=limit)

    def names(self, folder: str) -> list[str]:
        """Below the folder."""
        return self._files.names(self._root + folder)


def resolve(files: NodeFiles, path: str) -> str | None:
    """The path without links, or None if it leads nowhere."""
    ahead = path.split("/")[::-1]
    here = ""
    links = 0
    while ahead:
        part = ahead.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        seen = files.look(f"{here}/{part}")
        if seen is None or links > MOST_LINKS:
            return None
        if seen.kind is not FileKind.LINK:
            here = f"{here}/{part}"
            continue
        links += 1
        here = "" if seen.target.startswith("/") else here
        ahead.extend(seen.target.split("/")[::-1])
    return here or "/"


def missing(files: NodeFiles, paths: Iterable[str]) -> list[str]:
    """Those paths that lead nowhere, each once."""
    remembered = RememberedFiles(files)
    return [path for path in dict.fromkeys(paths) if resolve(remembered, path) is None]


def _kind(mode: int) -> FileKind:
    tests = {
        FileKind.FILE: stat.S_ISREG,
        FileKind.FOLDER: stat.S_ISDIR,
        FileKind.LINK: stat.S_ISLNK,
        FileKind.DEVICE: stat.S_ISCHR,
        FileKind.SOCKET: stat.S_ISSOCK,
    }
    return next((kind for kind, is_kind in tests.items() if is_kind(mode)), FileKind.OTHER)
