"""Writes the state file some time after something changed, off the loop: no answer to the kubelet waits for a disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aliquot_core.clock import Clock
from aliquot_deviceplugin.endpoint.state import State

log = logging.getLogger(__name__)

# A burst of a hundred Allocates is one write.
_GATHER = 0.5
_RETRY = 10.0


class StateKeeper:
    """Knows whether the file is behind, and brings it up to date."""

    def __init__(self, *, write: Callable[[State], None], snapshot: Callable[[], State], clock: Clock) -> None:
        """`write` may take its time and raise OSError; it runs in a thread."""
        self._write = write
        self._snapshot = snapshot
        self._clock = clock
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Have it written soon."""
        self._changed.set()

    async def run(self) -> None:
        """Write whenever something changed, until cancelled."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(_GATHER)
            if not await self.flush():
                await self._clock.sleep(_RETRY)

    async def flush(self) -> bool:
        """Write now if anything changed; tell whether the file is up to date."""
        if not self._changed.is_set():
            return True
        self._changed.clear()
        try:
            await asyncio.to_thread(self._write, self._snapshot())
        except OSError as error:
            self._changed.set()
            log.warning(
                "the state file can't be written; the endpoint goes on, but registers late after its next start: %s",
                error,
            )
            return False
        return True
