"""What every run has, whoever lives in it: a loop, a clock, an API server, and failures that tell their story."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from aliquot_core.names import Names
from simulation.universe import guard
from simulation.universe.api import ApiServer
from simulation.universe.judge import BrokenError
from simulation.universe.life import make_task
from simulation.universe.loop import LoopClock, VirtualLoop

TOLD = 60


class SimulationError(AssertionError):
    """A seed that shows a defect."""


class Run:
    """One API server on one clock, from one seed."""

    def __init__(self, seed: int, *, again: str, bookmark: float, look_every: float) -> None:
        """`again` is how a run is seen again; `look_every` is how often it is looked whether something is broken."""
        self.seed = seed
        self.loop = VirtualLoop()
        self.loop.set_task_factory(make_task)
        self.clock = LoopClock(self.loop)
        self.names = Names()
        self.told: deque[str] = deque(maxlen=TOLD)
        self.api = ApiServer(loop=self.loop, clock=self.clock, seed=seed, bookmark=bookmark)
        self._again = again
        self._look_every = look_every
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """What was told, as one number: equal for two runs of one seed."""
        return self._digest.hexdigest()

    def trace(self, text: str) -> None:
        """Remember that something happened."""
        line = f"{self.clock.monotonic():9.3f}  {text}"
        self._digest.update(line.encode())
        self.told.append(line)

    def play(self, main: Coroutine[Any, Any, None]) -> None:
        """Play something; `SimulationError` tells what is wrong."""
        try:
            with guard.no_outside():
                self.loop.run(main)
        except (AssertionError, BrokenError) as error:
            raise self.failure(str(error)) from error

    def failure(self, what: str) -> SimulationError:
        """Say what was wrong, after what, and how to see it again."""
        before = "\n".join(self.told)
        return SimulationError(
            f"{what}\n\n  seed {self.seed}: again with {self._again.format(seed=self.seed)}\n\n{before}"
        )

    async def watch(self, tasks: list[asyncio.Task[None]], seconds: float) -> None:
        """Let time pass, unless somebody ends who should not, or something is broken."""
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0:
            done, _ = await asyncio.wait(
                tasks, timeout=min(left, self._look_every), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            self.raise_broken()

    async def live_through(self, parts: Sequence[Coroutine[Any, Any, None]], *, seconds: float) -> None:
        """Let parts of the world go on for so long."""
        tasks = [self.loop.spawn(part) for part in parts]
        await self.watch(tasks, seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def until_well(self, *tasks: asyncio.Task[None], within: float) -> None:
        """Wait until all is well, but no longer than it may take."""
        end = self.clock.monotonic() + within
        while left := self.shortcomings():
            if self.clock.monotonic() >= end:
                raise AssertionError(f"{within:g} s after the last fault: {'; '.join(left)}")
            await self.watch(list(tasks), self._look_every)

    def raise_broken(self) -> None:
        """Raise what somebody found that must never be."""
        raise NotImplementedError

    def shortcomings(self) -> list[str]:
        """What is not well yet."""
        raise NotImplementedError
