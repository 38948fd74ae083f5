"""One endpoint per node: two would fight over the kubelet, which keeps one client per resource name."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from aliquot_core.clock import Clock
from aliquot_core.errors import NotAdmittedError

_POLL = 0.05


class AnotherEndpointError(NotAdmittedError):
    """Another endpoint serves this node."""


async def lock(path: Path, *, patience: float, clock: Clock) -> int:
    """Take the lock, which ends with this process, and return its descriptor.

    During an update the old endpoint is about to leave: waiting here is quicker than being started again.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = clock.monotonic() + patience
    while not _taken(descriptor):
        if clock.monotonic() >= deadline:
            holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "an unknown process"
            os.close(descriptor)
            raise AnotherEndpointError(
                f"another endpoint is running ({holder})", where=str(path), remedy="stop it, or this one"
            )
        await clock.sleep(_POLL)
    with contextlib.suppress(OSError):  # only people read who holds it: a full disk must not keep pods from starting
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()}\n".encode(), 0)
    return descriptor


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
