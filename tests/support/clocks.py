"""A clock that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools


class VirtualClock:
    """Time that passes only when a test says so; sleepers wake in the order of their deadlines."""

    def __init__(self, *, start: float = 1_000_000.0) -> None:
        self._now = start
        self._start = start
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._now - self._start

    def wall(self) -> float:
        """Seconds since 1970, virtually."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved time so far."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(seconds, 0.0), next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time on, waking each sleeper at its own instant and letting it run."""
        end = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await self._settle()
        self._now = end

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


class LeapingClock:
    """Time that leaps over every sleep at once, and remembers them: for real sockets under virtual rests."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds slept so far."""
        return sum(self.slept)

    def wall(self) -> float:
        """Seconds since 1970, virtually."""
        return 1_000_000.0 + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Leap."""
        self.slept.append(seconds)
        await asyncio.sleep(0)
