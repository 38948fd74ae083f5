"""Keeps the node's inventory true: asks the driver at start, after each event, and now and then.

A driver that is missing or does not answer is asked again; until then the node offers nothing and says why. What the
events, samples and marks mean for a GPU is decided in `health`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from aliquot_agent.gpus.driver import GpuDriver, GpuDriverError
from aliquot_agent.gpus.model import EventKind, GpuEvent, GpuUsage
from aliquot_agent.health.ailments import Book
from aliquot_agent.health.context_notes import why_unusable
from aliquot_agent.health.health_memory import HealthMemory, memory, recalled
from aliquot_agent.health.inventories import Cards, failed, inventory, seen
from aliquot_agent.health.judging import cleared, expired, heard, marked, sampled
from aliquot_agent.health.marks import Marks
from aliquot_agent.health.xids import Effect, Policy
from aliquot_agent.isolation.contexts import ContextOf
from aliquot_agent.isolation.offering import Offer, by_hardware, only_observed
from aliquot_agent.signal import Signal
from aliquot_core.clock import Clock
from aliquot_core.inventory import NOT_ASKED, Health, Inventory

log = logging.getLogger(__name__)

# Events tell of most changes at once; this finds what no event tells, such as a MIG mode that was switched.
LOOK_AFRESH = 60.0
# A driver that is being installed, or a node that is being mended.
TRY_AGAIN = 10.0

_LEVELS = {Health.HEALTHY: logging.INFO, Health.DEGRADED: logging.WARNING, Health.SICK: logging.ERROR}


class GpuWatch:
    """One node's GPUs, watched."""

    def __init__(
        self,
        *,
        driver: GpuDriver,
        clock: Clock,
        changed: Signal,
        obstacle: Callable[[], str],
        policy: Policy,
        memory: HealthMemory,
        beat: Callable[[], None],
        offer: Offer = only_observed,
        context: ContextOf = lambda _: None,
    ) -> None:
        """`obstacle` says what, outside the driver, keeps the GPUs from being given; `beat` is told that we live.

        `offer` says in which modes a GPU can hold a slice; `context` what a CUDA context takes of it, in MiB, if known.
        """
        self._driver = driver
        self._clock = clock
        self._changed = changed
        self._obstacle = obstacle
        self._policy = policy
        self._memory = memory
        self._beat = beat
        self._offer = by_hardware(offer)
        self._context = context
        self._kept = memory.load()
        self._cards = Cards(book=recalled(Book(), self._kept, policy=policy))
        self._marks = Marks()
        self._inventory = Inventory(problem=NOT_ASKED)
        # How often each XID came, by uuid and number; the uuid is empty where the driver did not say which GPU.
        self.xids: Counter[tuple[str, int]] = Counter()

    @property
    def inventory(self) -> Inventory:
        """What the node has, as it was known last."""
        return self._inventory

    @property
    def cards(self) -> Cards:
        """All that is known of the GPUs."""
        return self._cards

    def refresh(self) -> None:
        """Take in that an obstacle came or went."""
        self._publish()

    def mark(self, marks: Marks) -> None:
        """Take in what an operator says now; a clearing counts when it is said, not as long as it stands there."""
        if strangers := marks.strangers(self._cards.gpus) - self._marks.strangers(()):
            log.warning("the node's marks name GPUs that were not seen here", extra={"gpus": sorted(strangers)})
        if fresh := marks.clear - self._marks.clear:
            log.warning("an operator clears GPUs", extra={"gpus": sorted(fresh)})
            self._write(cleared(self._cards.book, fresh, now=self._clock.wall()))
        self._marks = marks
        self._publish()

    def sample(self, usages: Sequence[GpuUsage]) -> None:
        """Take in what the GPUs do."""
        now, steady = self._clock.wall(), self._clock.monotonic()
        self._write(sampled(self._cards.book, usages, policy=self._policy, now=now, steady=steady))
        self._publish()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            offers = await self._look()
            deadline = self._clock.monotonic() + (LOOK_AFRESH if offers else TRY_AGAIN)
            while (left := deadline - self._clock.monotonic()) > 0:
                self._beat()
                if await self._events(left):
                    break

    async def _look(self) -> bool:
        try:
            self._cards = seen(self._cards, await self._driver.discover(), now=self._clock.wall())
        except GpuDriverError as error:
            self._cards = failed(self._cards, reason=str(error), kind=error.kind)
        self._write(expired(self._cards.book, policy=self._policy, now=self._clock.wall()))
        self._publish()
        return not self._inventory.problem

    async def _events(self, seconds: float) -> bool:
        """Wait for events, and tell whether the driver is to be asked what they changed."""
        try:
            events = await self._driver.events(timeout_s=seconds)
        except GpuDriverError:
            await self._clock.sleep(min(seconds, TRY_AGAIN))
            return False
        for event in events:
            log.warning("GPU event", extra={"kind": str(event.kind), "gpu": event.uuid, "number": event.number})
            if event.kind is EventKind.XID and event.number is not None:
                self.xids[event.uuid or "", event.number] += 1
            self._write(heard(self._cards.book, event, policy=self._policy))
        if events:
            self._publish()
        return any(not self._is_ignored(event) for event in events)

    def _is_ignored(self, event: GpuEvent) -> bool:
        """Programs make such XIDs by the hundred; to ask the driver each time would only add to it."""
        return event.kind is EventKind.XID and self._policy.effect(event.number or 0) is Effect.IGNORED

    def _write(self, book: Book) -> None:
        self._cards = msgspec.structs.replace(self._cards, book=book)

    def _publish(self) -> None:
        self._write(marked(self._cards.book, self._marks, gpus=self._cards.gpus, now=self._clock.wall()))
        if (kept := memory(self._cards.book)) != self._kept:
            self._kept = kept
            self._memory.save(kept)
        modes = {uuid: self._offer(facts) for uuid, facts in self._cards.gpus.items()}
        contexts = {uuid: self._context(facts) for uuid, facts in self._cards.gpus.items()}
        now = inventory(self._cards, outside=self._obstacle(), isolation=modes, contexts=contexts)
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
            facts = {"gpu": gpu.uuid, "model": gpu.model} | ({"reason": gpu.reason} if gpu.reason else {})
            log.log(_LEVELS[gpu.health], "GPU is %s", gpu.health, extra=facts)
        if (why := why_unusable(gpu)) and (old is None or not why_unusable(old)):
            log.error(why)
        if gpu.isolation_lack and (old is None or old.isolation_lack != gpu.isolation_lack):
            log.error("slices are held less than was chosen", extra={"gpu": gpu.uuid, "reason": gpu.isolation_lack})
