"""What happened and was not asked for yet; both drivers keep their events and their GPUs' presence here."""

from __future__ import annotations

import asyncio

from aliquot_agent.gpus.model import EventKind, Fault, GpuEvent
from aliquot_agent.gpus.presence import Presence, observe
from aliquot_agent.waiting import sleep_unless
from aliquot_core.clock import Clock

# Nobody asks for events while the agent is stuck; the newest say enough when it comes back.
_MOST_KEPT = 1000


class EventBook:
    """Events in the order in which they were noticed, for one reader."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._events: list[GpuEvent] = []
        self._stirred = asyncio.Event()
        self.presence = Presence()

    def add(self, *, kind: EventKind, uuid: str | None, number: int | None = None) -> None:
        """Write down what happened, with the time."""
        self._events.append(GpuEvent(kind=kind, uuid=uuid, number=number, at=self._clock.wall()))
        del self._events[:-_MOST_KEPT]
        self.stir()

    def observe(self, *, uuid: str, fault: Fault | None) -> None:
        """Take in that a GPU answered (None), or what was the matter with it."""
        self.presence, kind = observe(self.presence, uuid=uuid, fault=fault)
        if kind is not None:
            self.add(kind=kind, uuid=uuid)

    def stir(self) -> None:
        """Wake the reader, though there may be nothing to read."""
        self._stirred.set()

    @property
    def empty(self) -> bool:
        """Whether nothing happened since the last `take`."""
        return not self._events

    def take(self) -> list[GpuEvent]:
        """Hand over what happened."""
        events, self._events = self._events, []
        return events

    async def wait(self, *, seconds: float) -> None:
        """Wait until somebody stirs, at most so long."""
        await sleep_unless(clock=self._clock, seconds=seconds, woken=self._stirred)
