"""How much of the GPUs anybody could have given away at an instant, to those who are there then: a bound by hindsight.

As if all who run and all who wait could be placed afresh, in pieces of any size, machines being one. A fractional
knapsack: jobs by GPUs per core (or per MiB of main memory) until the cores are used up; then no more than there are
GPUs. What jobs can't be cut into and what machines can't be joined to makes the true optimum smaller, never larger.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aliquot_scheduler.simulating.fragments import Reals
from aliquot_scheduler.simulating.workload import Longs, Machine, Need


class _Knapsack:
    """Those with GPUs, by GPUs per unit of one scarce thing."""

    def __init__(self, *, totals: Longs, weights: Longs, room: int) -> None:
        self._order = np.argsort(-totals / np.maximum(weights, 1e-9), kind="stable")
        self._totals = totals[self._order].astype(np.float64)
        self._weights = weights[self._order].astype(np.float64)
        self._room = room

    def most(self, counts: Longs) -> float:
        """Milli of GPUs that go in, of so many of each kind."""
        number = counts[self._order]
        weights = self._weights * number
        before = weights.cumsum() - weights
        free = np.maximum(0.0, self._room - before)
        part: Reals = np.where(weights > 0, np.minimum(1.0, free / np.maximum(weights, 1e-9)), 1.0)
        return float((self._totals * number * part).sum())


class Bound:
    """The bound, for these machines and kinds of jobs."""

    def __init__(self, *, machines: Sequence[Machine], needs: Sequence[Need], capacity: int) -> None:
        self._capacity = float(capacity)
        totals = np.array([need.total for need in needs], dtype=np.int64)
        with_gpus = [machine for machine in machines if machine.gpus]
        cores = np.array([need.cores for need in needs], dtype=np.int64)
        memory = np.array([need.memory for need in needs], dtype=np.int64)
        self._knapsacks = (
            _Knapsack(totals=totals, weights=cores, room=sum(machine.cores for machine in with_gpus)),
            _Knapsack(totals=totals, weights=memory, room=sum(machine.memory for machine in with_gpus)),
        )

    def most(self, counts: Longs) -> float:
        """Milli that could be given away, of so many jobs of each kind that are there."""
        return min(self._capacity, *(one.most(counts) for one in self._knapsacks))
