"""Wakes when a folder changes: inotify through libc, or a poll where the kernel can't.

No dependency: three calls of libc through ctypes. The kernel only wakes us; what changed is looked up, so a lost or
strange event does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from aliquot_agent.waiting import sleep_unless
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_IGNORED = 0x8000
_INTERESTING = _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF
# Even a watched folder is looked at now and then: our own sockets lie in a folder below it, which is not watched.
_ANYWAY = 1.0


class FolderWatch:
    """One folder, which may not be there yet, go away and come back."""

    def __init__(self, folder: Path, *, clock: Clock, poll: float) -> None:
        self._folder = folder
        self._clock = clock
        self._poll = poll
        self._descriptor: int | None = None
        self._watched: tuple[int, int] | None = None
        self._woken = asyncio.Event()

    def arm(self) -> None:
        """Watch from now on: what changes after this wakes the next `changed`."""
        present = _identity(self._folder)
        if present == self._watched:
            return
        self.close()
        if present is None:
            return
        try:
            self._descriptor = _inotify(self._folder)
        except OSError as error:
            log.warning("inotify fails, so the folder is polled: %s", error, extra={"folder": str(self._folder)})
            self._watched = present
            return
        self._watched = present
        asyncio.get_running_loop().add_reader(self._descriptor, self._readable)

    async def changed(self) -> None:
        """Return when something may have changed, or when it is time to look anyway."""
        seconds = self._poll if self._descriptor is None else _ANYWAY
        await sleep_unless(clock=self._clock, seconds=seconds, woken=self._woken)

    def wake(self) -> None:
        """Let `changed` return: there is another reason to look."""
        self._woken.set()

    def close(self) -> None:
        """Watch no longer."""
        self._watched = None
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _readable(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                if any(mask & _IN_IGNORED for mask in _masks(os.read(self._descriptor, 64 * 1024))):
                    # The folder is gone; one made anew may get the same inode number, so forget the old one now.
                    self.close()
        self._woken.set()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_EVENT = struct.Struct("iIII")


def _masks(events: bytes) -> Iterator[int]:
    """Walk through inotify's events: a fixed head, then the name in as many bytes as the head says."""
    offset = 0
    while offset + _EVENT.size <= len(events):
        _, mask, _, length = _EVENT.unpack_from(events, offset)
        yield mask
        offset += _EVENT.size + length


def _inotify(folder: Path) -> int:
    """Open an inotify descriptor on a folder, or raise OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), ctypes.c_uint32(_INTERESTING)) < 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, "inotify_add_watch")
    return descriptor
