"""Files that are replaced whole: after a crash at any instant there is the old content or the new one.

Two kinds of file are written elsewhere, for a reason. CDI specs (`deviceplugin/cdi/store`) pass through a name that the
runtime's cache must not take for a spec, and are collected by it. The centre's certificates lie above this module.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

# Root reads it, and who runs Aliquot on one machine.
_MODE = 0o600
# The largest of them, a table of 1,600 ids with the names given for each, takes less than 1 MiB.
MOST = 16 * 1024 * 1024


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Put the content in the file's place, or raise OSError and leave all as it was.

    Durable content survives a power cut too; whatever can be made anew spares the disk that.
    """
    # Two processes that write at once each have a draft of their own.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(draft, content, durable=durable)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if durable:
        _sync_folder(path.parent)


def read_file(path: Path, *, most: int = MOST) -> bytes:
    """Read an ordinary file of bearable size, or raise OSError: a pipe would keep the whole process waiting."""
    with open(path, "rb", opener=_without_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not an ordinary file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"more than {most} bytes", str(path))
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _write(path: Path, content: bytes, *, durable: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
