"""The real clock, for the composition roots to hand in."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Time as the machine has it."""

    def monotonic(self) -> float:
        """Seconds since some instant, never backwards."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Give other tasks their turn for so long."""
        await asyncio.sleep(seconds)
