"""A node's GPUs, watched by the agent's own loop, for tests that make things happen to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from aliquot_agent.gpus.driver import GpuDriver
from aliquot_agent.health.gpu_watch import GpuWatch
from aliquot_agent.health.health_memory import Remembered
from aliquot_agent.health.marks import read_marks
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_agent.isolation.contexts import ContextOf
from aliquot_agent.isolation.offering import Offer, only_observed
from aliquot_agent.signal import Signal
from aliquot_core.clock import Clock
from aliquot_core.inventory import Health
from aliquot_core.names import Names
from aliquot_core.objects import Node

NAMES = Names()


class KeptInMemory:
    """What outlives an agent, without a file."""

    def __init__(self) -> None:
        self.kept: tuple[Remembered, ...] = ()
        self.saves = 0

    def load(self) -> tuple[Remembered, ...]:
        """What was kept last."""
        return self.kept

    def save(self, remembered: tuple[Remembered, ...]) -> None:
        """Keep this."""
        self.kept = remembered
        self.saves += 1


class Watched:
    """The watch, what it says, and what an operator says to it."""

    def __init__(
        self,
        *,
        driver: GpuDriver,
        clock: Clock,
        memory: KeptInMemory | None = None,
        settings: HealthSettings | None = None,
        offer: Offer = only_observed,
        context: ContextOf = lambda _: None,
    ) -> None:
        self.changed = Signal()
        self.beats = 0
        self.obstacle = ""
        self._clock = clock
        self.watch = GpuWatch(
            driver=driver,
            clock=clock,
            changed=self.changed,
            obstacle=lambda: self.obstacle,
            policy=policy(settings or HealthSettings(), names=NAMES),
            memory=memory or KeptInMemory(),
            beat=self._beat,
            offer=offer,
            context=context,
        )

    @property
    def health(self) -> list[Health]:
        """Of each GPU, by index."""
        return [gpu.health for gpu in self.watch.inventory.gpus]

    def annotate(self, **notes: str) -> None:
        """Write marks on the node, and no others than these."""
        annotations = {NAMES.of(name.replace("_", "-")): text for name, text in notes.items()}
        node = msgspec.convert({"metadata": {"annotations": annotations}}, Node)
        self.watch.mark(read_marks(node, names=NAMES))

    async def until(self, holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Wait, on a real clock, until something holds; not all that is known changes what is published."""
        async with asyncio.timeout(seconds):
            while not holds():
                await self.changed.wait(clock=self._clock, at_most=0.05)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let the watch run."""
        task = asyncio.ensure_future(self.watch.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _beat(self) -> None:
        self.beats += 1
