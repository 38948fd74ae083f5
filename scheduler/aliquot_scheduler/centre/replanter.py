"""Queues that change are read once for all changes that came meanwhile.

By another tree everybody is counted anew: 0.1 s with 5,000 who wait on 1,000 nodes, while nobody is answered, and 2 s
where a model is named of which no queue spoke before, or none does any more. A hundred queues that are created together
would cost that a hundred times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aliquot_core.clock import Clock


class Replanter:
    """Reads all queues when some have changed; `read` is how."""

    def __init__(self, *, read: Callable[[], None], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Some are others than they were."""
        self._changed.set()

    async def run(self) -> None:
        """Read them until cancelled; however often they change, half the time is others'."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = self._clock.monotonic()
            self._read()
            if (spent := self._clock.monotonic() - began) > 0.0:
                await self._clock.sleep(spent)
