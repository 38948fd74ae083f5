"""How it was: a ring of points in memory, of the leader that looked."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from aliquot_scheduler.page.model import Sample, State, Totals

_NOTHING = Totals()


class History:
    """The last points."""

    def __init__(self, *, points: int) -> None:
        self._samples: deque[Sample] = deque(maxlen=points)
        # What had been counted at the point before.
        self._before = _NOTHING

    def counted_anew(self) -> None:
        """Another reign has begun: it counts from nothing."""
        self._before = _NOTHING

    def add(self, state: State) -> None:
        """One more point."""
        totals, before = state.totals, self._before
        evicted_for = Counter(totals.evicted_for) - Counter(before.evicted_for)
        let_in, waited = totals.let_in - before.let_in, totals.waited - before.waited
        self._samples.append(
            Sample(
                at=state.at,
                compute_granted=_part(totals.compute_granted, totals.compute),
                compute_used=None if totals.compute_used is None else _part(totals.compute_used, totals.compute),
                memory_granted=_part(totals.memory_granted, totals.memory),
                memory_used=None if totals.memory_used is None else _part(totals.memory_used, totals.memory),
                waiting=totals.waiting,
                wait=round(waited / let_in, 3) if let_in > 0 else None,
                evicted=evicted_for.total(),
                evicted_for=dict(evicted_for),
            )
        )
        self._before = totals

    def restore(self, samples: Sequence[Sample], *, now: float) -> None:
        """Take over what was kept of the time before; nothing of a clock that was ahead of ours."""
        first = self._samples[0].at if self._samples else now
        earlier = sorted((one for one in samples if one.at < first), key=lambda one: one.at)
        self._samples = deque([*earlier, *self._samples], maxlen=self._samples.maxlen)

    def since(self, at: float = 0.0) -> list[Sample]:
        """All points after an instant, the oldest first."""
        return [sample for sample in self._samples if sample.at > at]


def _part(amount: int, whole: int) -> float:
    return round(amount / whole, 4) if whole else 0.0
