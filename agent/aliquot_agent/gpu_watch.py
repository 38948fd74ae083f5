"""Keeps the node's inventory true: asks the driver at start, after each event, and now and then.

A driver that is missing or does not answer is asked again; until then the node offers nothing and says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aliquot_agent.gpus.driver import GpuDriver, GpuDriverError
from aliquot_agent.gpus.model import GpuEvent
from aliquot_agent.inventories import Cards, failed, inventory, seen
from aliquot_agent.signal import Signal
from aliquot_core.clock import Clock
from aliquot_core.inventory import Health, Inventory

log = logging.getLogger(__name__)

# Events tell of most changes at once; this finds what no event tells, such as a MIG mode that was switched.
LOOK_AFRESH = 60.0
# A driver that is being installed, or a node that is being mended.
TRY_AGAIN = 10.0


class GpuWatch:
    """One node's GPUs, watched."""

    def __init__(self, *, driver: GpuDriver, clock: Clock, changed: Signal, obstacle: Callable[[], str]) -> None:
        """`obstacle` says what, outside the driver, keeps the GPUs from being given; empty if nothing does."""
        self._driver = driver
        self._clock = clock
        self._changed = changed
        self._obstacle = obstacle
        self._cards = Cards()
        self._inventory = Inventory(problem="the driver was not asked yet")

    @property
    def inventory(self) -> Inventory:
        """What the node has, as it was known last."""
        return self._inventory

    def refresh(self) -> None:
        """Take in that an obstacle came or went."""
        self._publish()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            answered = await self._look()
            deadline = self._clock.monotonic() + (LOOK_AFRESH if answered else TRY_AGAIN)
            while (left := deadline - self._clock.monotonic()) > 0:
                if await self._events(left):
                    break

    async def _look(self) -> bool:
        try:
            self._cards = seen(self._cards, await self._driver.discover())
        except GpuDriverError as error:
            self._cards = failed(self._cards, reason=str(error))
            self._publish()
            return False
        self._publish()
        return True

    async def _events(self, seconds: float) -> list[GpuEvent]:
        try:
            events = await self._driver.events(timeout_s=seconds)
        except GpuDriverError:
            await self._clock.sleep(min(seconds, TRY_AGAIN))
            return []
        for event in events:
            log.warning("GPU event", extra={"kind": str(event.kind), "gpu": event.uuid, "number": event.number})
        return events

    def _publish(self) -> None:
        now = inventory(self._cards, outside=self._obstacle())
        if now == self._inventory:
            return
        _log_changes(self._inventory, now)
        self._inventory = now
        self._changed.notify()


def _log_changes(before: Inventory, now: Inventory) -> None:
    if now.problem and now.problem != before.problem:
        log.error("no GPU can be given", extra={"reason": now.problem})
    for gpu in now.gpus:
        old = before.gpu(gpu.uuid)
        if old is None or (old.health, old.reason) != (gpu.health, gpu.reason):
            level = logging.INFO if gpu.health is Health.HEALTHY else logging.ERROR
            log.log(level, "GPU is %s", gpu.health, extra={"gpu": gpu.uuid, "model": gpu.model, "reason": gpu.reason})
