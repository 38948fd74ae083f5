"""One folder of the node as `store` uses it: the few operations that tests make fail on purpose."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from aliquot_agent.whole_file import read_file

# The runtime is root; nobody else needs the tokens that stand inside.
FILE_MODE = 0o600
FOLDER_MODE = 0o755


class Folder(Protocol):
    """A folder that may not be there yet; every operation may raise OSError."""

    def files(self) -> list[str]:
        """The names of what lies in it; none if it does not exist."""
        ...

    def read(self, file: str) -> bytes | None:
        """A file's content; None if it does not exist."""
        ...

    def write(self, file: str, content: bytes) -> None:
        """Create or overwrite a file, and the folder if it is missing."""
        ...

    def rename(self, file: str, to: str) -> None:
        """Give a file another name, replacing what bears that name."""
        ...

    def remove(self, file: str) -> bool:
        """Remove a file; False if it does not exist."""
        ...


class RealFolder:
    """A folder of the file system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def files(self) -> list[str]:
        """Names, in no order."""
        try:
            return [entry.name for entry in self._path.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, file: str) -> bytes | None:
        """The whole content."""
        try:
            return read_file(self._path / file)
        except FileNotFoundError:
            return None

    def write(self, file: str, content: bytes) -> None:
        """A reboot empties /var/run, so the folder is made when it is missed, not once at the start."""
        try:
            descriptor = self._create(file)
        except FileNotFoundError:
            self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = self._create(file)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)

    def rename(self, file: str, to: str) -> None:
        """Atomic: whoever reads sees the old content or the new."""
        (self._path / file).replace(self._path / to)

    def remove(self, file: str) -> bool:
        """Of a file that somebody else removed meanwhile, nothing is left to do."""
        try:
            (self._path / file).unlink()
        except FileNotFoundError:
            return False
        return True

    def _create(self, file: str) -> int:
        return os.open(
            self._path / file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
        )
