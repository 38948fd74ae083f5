"""Folders for tests whose processes may be killed: short enough for sockets, and gone in the end."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PATIENCE = 60.0


@contextlib.contextmanager
def lent_folder(prefix: str) -> Iterator[Path]:
    """A folder whose sockets' paths stay under the kernel's 107 bytes, which pytest's own may not."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """With all that is in it: what dies with a process that was killed may write its last lines meanwhile."""
    deadline = time.monotonic() + _PATIENCE
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
