"""Something changed: whoever waits for it looks again."""

from __future__ import annotations

import asyncio

from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock


class Signal:
    """Wakes all who wait; says nothing of what changed, so that nobody relies on seeing each change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.count = 0

    def notify(self) -> None:
        """Wake everybody who waits now, and who looked before now."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, *, clock: Clock, at_most: float, since: int | None = None) -> bool:
        """Wait for the next change, but no longer than so many seconds; tell whether there was one.

        Who does something slow between looking and waiting gives the `count` from before it looked: what changed
        meanwhile is then not slept through.
        """
        if since is not None and since != self.count:
            return True
        changed = asyncio.ensure_future(self._event.wait())
        try:
            return await settled(changed, clock=clock, seconds=at_most)
        finally:
            changed.cancel()
