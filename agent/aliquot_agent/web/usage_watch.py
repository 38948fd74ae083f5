"""Asks the driver now and then what the GPUs do, so that a scrape never has to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from aliquot_agent.gpus.driver import GpuDriver, GpuDriverError
from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.signal import Signal
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs that answered did, and when (seconds since 1970; None: they were not asked yet)."""

    at: float | None = None
    usages: tuple[GpuUsage, ...] = ()


class UsageWatch:
    """One node's samples."""

    def __init__(
        self,
        *,
        driver: GpuDriver,
        clock: Clock,
        every: float,
        tell: Callable[[Sequence[GpuUsage]], None],
        beat: Callable[[], None],
    ) -> None:
        """`tell` is given each sample; `beat` is told that we live."""
        self._driver = driver
        self._clock = clock
        self._every = every
        self._tell = tell
        self._beat = beat
        self.sample = Sample()
        # Tells of each new sample.
        self.changed = Signal()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self._beat()
            self.sample = Sample(at=self._clock.wall(), usages=await self._ask())
            self._tell(self.sample.usages)
            self.changed.notify()
            await self._clock.sleep(self._every)

    async def _ask(self) -> tuple[GpuUsage, ...]:
        """A driver that does not work has nothing to say, and the watch over the GPUs says why."""
        try:
            return await self._driver.usage()
        except GpuDriverError as error:
            log.debug("usage is not known", extra={"error": str(error)})
            return ()
