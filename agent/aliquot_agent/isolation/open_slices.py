"""A container's limits and account, kept open from beat to beat.

They are read and written by calls and never mapped: the account is the tenant's to write, and to cut short, and who has
a file mapped that is cut short is killed when he looks at it. Made larger it would fill the node's disk, also where no
size tells of it, for room can be taken behind a file's end: it is cut back with each beat.

What is read is the head, and of the tables only what is in use: with the files opened anew and read whole a beat took
three times as long (benchmarks/isolation/beat.py).
"""

from __future__ import annotations

import os
from pathlib import Path

from aliquot_agent.isolation.limits_file import (
    ACCOUNT_BYTES,
    Account,
    GpuLimits,
    Slot,
    decode_limits,
    encode_live,
    freeing,
    live_offset,
    read_account,
    read_slots,
)
from aliquot_agent.isolation.slice_files import ACCOUNT, LIMITS

_MOST_LIMITS = 1 << 16
# File systems give room in blocks of their own.
_MOST_ON_DISK = 2 * ACCOUNT_BYTES
_BLOCK = 512


class OpenSlices:
    """The slices of one container; raises OSError where its files are not there."""

    def __init__(self, own: Path) -> None:
        self.own = own
        self._path = str(own / ACCOUNT)
        self._limits = os.open(own / LIMITS, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._account = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            os.close(self._limits)
            raise
        # Another one for each life of the container: its files are made anew. While it is open no number is used again.
        self.file = os.fstat(self._account).st_ino
        # By GPU, as they stand in the file: nobody but us writes there.
        self.limits = list(decode_limits(os.pread(self._limits, _MOST_LIMITS, 0)))

    def is_current(self) -> bool:
        """Whether these are the files that lie there now: the account is the one that is replaced last."""
        try:
            return os.stat(self._path).st_ino == self.file  # noqa: PTH116 - a tenth of a beat
        except OSError:
            return False

    def cut_back(self) -> bool:
        """Take off what the tenant made the account larger by, or took behind its end; whether there was any."""
        status = os.fstat(self._account)
        if status.st_size <= ACCOUNT_BYTES and status.st_blocks * _BLOCK <= _MOST_ON_DISK:
            return False
        os.ftruncate(self._account, min(status.st_size, ACCOUNT_BYTES))
        return True

    def account(self) -> Account | None:
        """What stands in the account; None while no process has opened it, or if it is not one."""
        if os.fstat(self._account).st_size != ACCOUNT_BYTES:
            return None
        return read_account(self._read, gpus=len(self.limits))

    def slots(self) -> list[Slot]:
        """Which processes say what they hold, as far as the account is one."""
        return read_slots(self._read) if os.fstat(self._account).st_size == ACCOUNT_BYTES else []

    def clear(self, slot: Slot) -> bool:
        """Free the slot of a process that is gone; False if it is another's by now; raises OSError."""
        steps = freeing(slot, read=self._read)
        for at, data in steps:
            os.pwrite(self._account, data, at)
        return bool(steps)

    def write(self, limits: GpuLimits, *, gpu: int) -> None:
        """Put what may change in its place; raises OSError."""
        os.pwrite(self._limits, encode_live(limits), live_offset(gpu))
        self.limits[gpu] = limits

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._limits)
        os.close(self._account)

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._account, size, at)
