"""Keeps what containers print within bounds, whatever they print.

Containers write straight into their files, so nobody has to read along. A file that has grown beyond its bound keeps
its end: the beginning is given back to the disk as a hole, which moves no byte of what stays. So those who write need
not be told, and a reader goes on where the data do.
Where the file system makes no holes the file is emptied as a whole, which writers that append survive as well.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

# Twice what the real kubelet keeps of a container (10 MiB a file), so that half of it is there at the least.
MOST = 20 * 1024 * 1024
# fallocate(2): keep the size, make a hole.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PAGE = 4096


def hold_to(most: int, *, files: Iterable[Path]) -> None:
    """Let the older half go of each file that holds more than so much."""
    for path in files:
        try:
            _hold(path, most=most)
        except FileNotFoundError:
            continue  # its pod was forgotten between two looks
        except OSError as error:
            log.warning("a log can't be held to its bound", extra={"path": str(path), "why": str(error)})


def _hold(path: Path, *, most: int) -> None:
    found = path.stat()
    # In blocks of 512: what lies on the disk, without holes.
    if found.st_blocks * 512 <= most:
        return
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        end = (found.st_size - most // 2) // _PAGE * _PAGE
        if not _punch(file, end):
            os.ftruncate(file, 0)
    finally:
        os.close(file)
    log.info("the older half of a log was let go", extra={"path": str(path), "bytes": end})


def _punch(file: int, end: int) -> bool:
    """Make a hole from the beginning; False where there are no holes."""
    libc = ctypes.CDLL(None, use_errno=True)
    mode = _KEEP_SIZE | _PUNCH_HOLE
    if libc.fallocate(file, mode, ctypes.c_int64(0), ctypes.c_int64(end)) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EOPNOTSUPP, errno.ENOSYS}:
        return False
    raise OSError(number, os.strerror(number))
