"""How long the kubelet's questions take to answer, and how they end: counted here, told by `metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

from aliquot_agent.door import DoorHandler
from aliquot_core.clock import Clock
from aliquot_core.door import Prefer, PreStart

# From what a decision takes to what a start may be held for; 3 and 25 ms are promised.
BOUNDS = (0.001, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

PRESTART, PREFER = "PreStartContainer", "GetPreferredAllocation"
# `dropped`: nobody waited for the answer any more.
OUTCOMES = {PRESTART: ("ready", "refused", "dropped"), PREFER: ("advised", "none", "dropped")}


class Histogram(msgspec.Struct, kw_only=True):
    """How many took how long: one number per bound, for those above the bound before, and one for the rest."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


class CallTimes:
    """Answers the kubelet's questions by somebody else, with a watch in hand."""

    def __init__(self, handler: DoorHandler, *, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._histograms = {(rpc, outcome): Histogram() for rpc, outcomes in OUTCOMES.items() for outcome in outcomes}

    def so_far(self) -> Mapping[tuple[str, str], Histogram]:
        """What was counted, by call and outcome, as it is now."""
        return {key: Histogram(counts=[*one.counts], seconds=one.seconds) for key, one in self._histograms.items()}

    async def may_start(self, call: PreStart) -> str | None:
        """Ask, and count."""
        began, outcome = self._clock.monotonic(), "dropped"
        try:
            refused = await self._handler.may_start(call)
            outcome = "ready" if refused is None else "refused"
        finally:
            self._count(PRESTART, outcome, began)
        return refused

    async def prefer(self, call: Prefer) -> list[str]:
        """Ask, and count."""
        began, outcome = self._clock.monotonic(), "dropped"
        try:
            ids = await self._handler.prefer(call)
            outcome = "advised" if ids else "none"
        finally:
            self._count(PREFER, outcome, began)
        return ids

    def _count(self, rpc: str, outcome: str, began: float) -> None:
        self._histograms[rpc, outcome].add(self._clock.monotonic() - began)
