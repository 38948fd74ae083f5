"""How it was: a ring of points in memory, of the leader that looked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aliquot_scheduler.page.model import Sample, State, Totals


class History:
    """The last points."""

    def __init__(self, *, points: int) -> None:
        self._samples: deque[Sample] = deque(maxlen=points)
        # What had been counted at the point before; nothing, where the counting began anew since.
        self._before: Totals | None = None

    def add(self, state: State) -> None:
        """One more point."""
        totals = state.totals
        before = self._before
        if before is None or totals.let_in < before.let_in or totals.evicted < before.evicted:
            before = totals
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
                evicted=totals.evicted - before.evicted,
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
