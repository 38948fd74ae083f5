"""Keeps what containers print within bounds, whatever they print.

Containers write straight into their files, so nobody has to read along. A file that has grown beyond its bound keeps
its end: the beginning is given back to the disk as a hole, which moves no byte of what stays. So those who write need
not be told, and a reader goes on where the data do.
Where the file system makes no holes the file is emptied as a whole, which writers that append survive as well.

Nothing stops a flood between two looks: a program that writes 600 MB a second had 292 MB on the disk when it was looked
at twice a second. So the files that somebody writes into are looked at every few hundredths of a second, and all
others, of which there may be hundreds, at leisure. Where the disk is nearly full the bound is
lower: nobody's log is to take the room that others, and what is remembered of pods, need.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

# Twice what the real kubelet keeps of a container (10 MiB a file), so that half of it is there at the least.
MOST = 20 * 1024 * 1024
# However full the disk is: what tells why a program failed.
_LEAST = 1024 * 1024
_PART_OF_FREE = 10
# 20 microseconds a container: to look takes at most so small a part of a processor.
_PART_OF_TIME = 50
# fallocate(2): keep the size, make a hole.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PAGE = 4096


class LogKeeper:
    """Holds all logs below a folder to their bound, for as long as it runs."""

    def __init__(
        self,
        *,
        folder: Path,
        written: Callable[[], Iterable[Path]],
        clock: Clock,
        most: int = MOST,
        look: float,
        look_soon: float,
    ) -> None:
        """`written` are the files of containers that run, looked at each `look_soon` seconds; all each `look`."""
        self._folder = folder
        self._written = written
        self._clock = clock
        self._most = most
        self._look = look
        self._look_soon = look_soon
        # Of which it is logged already that their beginning is gone: a flood is cut thirty times a second.
        self._told: set[Path] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            most = bound(most=self._most, free=_free(self._folder))
            there = list(self._folder.glob("*/*/*.log"))
            self._told.intersection_update(there)
            self._tell(hold_to(most, files=there))
            pause, until = self._look_soon, self._clock.monotonic() + self._look
            while (now := self._clock.monotonic()) < until:
                await self._clock.sleep(min(until - now, pause))
                pause = max(self._look_soon, self._look_at_written(most))

    def _look_at_written(self, most: int) -> float:
        """Look, and say how long to rest from it; not at all while somebody floods."""
        began = self._clock.monotonic()
        cut = hold_to(most, files=self._written())
        self._tell(cut)
        return 0.0 if cut else _PART_OF_TIME * (self._clock.monotonic() - began)

    def _tell(self, cut: Iterable[Path]) -> None:
        for path in cut:
            if path not in self._told:
                self._told.add(path)
                log.info("a log loses its older half, now and whenever it is full", extra={"path": str(path)})


def bound(*, most: int, free: int) -> int:
    """How much one log may hold where so much of the disk is free."""
    return min(most, max(_LEAST, free // _PART_OF_FREE))


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except FileNotFoundError:
        return 0  # somebody has removed it, and all logs with it
    return found.f_bavail * found.f_frsize


def hold_to(most: int, *, files: Iterable[Path]) -> list[Path]:
    """Let the older half go of each file that holds more than so much; which those were."""
    cut = []
    for path in files:
        try:
            if _hold(path, most=most):
                cut.append(path)
        except FileNotFoundError:
            continue  # its pod was forgotten between two looks
        except OSError as error:
            log.warning("a log can't be held to its bound", extra={"path": str(path), "why": str(error)})
    return cut


def _hold(path: Path, *, most: int) -> bool:
    found = path.stat()
    # In blocks of 512: what lies on the disk, without holes.
    if found.st_blocks * 512 <= most:
        return False
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        end = (found.st_size - most // 2) // _PAGE * _PAGE
        if not _punch(file, end):
            os.ftruncate(file, 0)
    finally:
        os.close(file)
    return True


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
