"""Pods arrive one by one; each is placed at once where the policy likes it best, or has failed for good.

The rules are those of benchmarks/placement/openb/README.md, so that figures can be set beside published ones. Between
two pods with the same need only machines that changed are rated anew: a replay of 10,000 pods takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from aliquot_scheduler.simulating.fleet import ALL, Fleet, Rows, Some
from aliquot_scheduler.simulating.fragments import Fragments, Reals, typical_pods
from aliquot_scheduler.simulating.policies import Policy
from aliquot_scheduler.simulating.workload import Longs, Need, Workload

# Costs nearer than this are equal: they differ by the order of summation alone.
EQUAL = 1e-9
FAILED = -1


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where each arrival went (-1: nowhere), and after each the allocated milli, and milli that are fragments."""

    where: Longs
    asked: Longs
    allocated: Longs
    fragments: Reals
    capacity: int

    @property
    def failed(self) -> int:
        """How many were not placed."""
        return int((self.where == FAILED).sum())

    def curve(self, values: Reals | Longs) -> dict[int, float]:
        """The mean of these values, in percent of capacity, by how much had been asked for, in whole percent."""
        if not self.capacity:
            return {}
        asked = np.rint(self.asked / self.capacity * 100).astype(np.int64)
        percent = np.round(values / self.capacity * 100, 2)
        counts, sums = np.bincount(asked), np.bincount(asked, weights=percent)
        means = {int(x): float(sums[x] / counts[x]) for x in np.flatnonzero(counts)}
        for x in np.flatnonzero(counts == 0).tolist():
            if near := counts[max(0, x - 1) : x + 2].sum():
                means[x] = float(sums[max(0, x - 1) : x + 2].sum() / near)
        return dict(sorted(means.items()))


class Ties:
    """Which of several equally good machines: the first of a given line, or a fresh draw."""

    def __init__(self, *, line: Longs | None = None, random: np.random.Generator | None = None) -> None:
        self._line = line
        self._random = random

    def choose(self, rows: Rows) -> int:
        """One of them."""
        if self._line is not None:
            return int(rows[self._line[rows].argmin()])
        return int(rows[self._random.integers(len(rows))]) if self._random is not None else int(rows[0])


class _Known:
    """Ratings of all machines for one need, and up to which change they are good."""

    def __init__(self, size: int) -> None:
        self.cost = np.full(size, np.inf)
        self.gpu = np.zeros(size, dtype=np.intp)
        self.changes = 0
        self.version: int | None = None


class Replay:
    """One run."""

    def __init__(self, workload: Workload, *, fleet: Fleet, policy: Policy, ties: Ties) -> None:
        self._workload = workload
        self._fleet = fleet
        self._policy = policy
        self._ties = ties
        self._known: dict[int, _Known] = {}
        self._changed: list[int] = []
        self._where: list[int] = []
        self._states: list[tuple[int, Longs, Longs]] = []
        self._empty = fleet.cores.copy(), fleet.milli.copy()

    def steps(self) -> Iterator[int]:
        """Let all arrive; tells how many have."""
        for number, arrival in enumerate(self._workload.arrivals.tolist(), start=1):
            self._arrive(int(self._workload.pods[arrival]))
            yield number

    def outcome(self) -> Outcome:
        """What has come of it so far."""
        arrived = self._workload.pods[self._workload.arrivals[: len(self._where)]]
        totals = np.array([need.total for need in self._workload.needs], dtype=np.int64)[arrived]
        where = np.array(self._where, dtype=np.int64)
        return Outcome(
            where=where,
            asked=totals.cumsum(),
            allocated=np.where(where == FAILED, 0, totals).cumsum(),
            fragments=self._fragments(),
            capacity=self._workload.capacity,
        )

    def _arrive(self, number: int) -> None:
        need = self._workload.needs[number]
        self._policy.arrived(need)
        known = self._rated(number, need)
        least = known.cost.min(initial=np.inf)
        if not np.isfinite(least):
            self._where.append(FAILED)
            return
        row = self._ties.choose(np.flatnonzero(known.cost <= least + EQUAL))
        self._fleet.put(need, row=row, gpus=self._gpus(need, row=row, best=int(known.gpu[row])))
        self._changed.append(row)
        self._where.append(row)
        self._states.append((row, self._fleet.cores[row].copy(), self._fleet.milli[:, row].copy()))

    def _gpus(self, need: Need, *, row: int, best: int) -> list[int]:
        if need.shared:
            return [best]
        fitting: list[int] = np.flatnonzero(self._fleet.takes(need, np.array([row]))[:, 0])[: need.gpus].tolist()
        return fitting

    def _rated(self, number: int, need: Need) -> _Known:
        known = self._known.setdefault(number, _Known(self._fleet.size))
        changed = set(self._changed[known.changes :])
        if changed or known.version != self._policy.version:
            some: Some = np.array(sorted(changed), dtype=np.intp) if known.version == self._policy.version else ALL
            rating = self._policy.rate(need, some)
            known.cost[some], known.gpu[some] = rating.cost, rating.gpu
        known.changes, known.version = len(self._changed), self._policy.version
        return known

    def _fragments(self) -> Reals:
        """Of the whole fleet after each arrival: only the machine that took the pod changes."""
        count = Fragments(typical_pods(self._workload), models=self._fleet.models)
        cores, milli = self._empty
        last = count.of(cores=cores, milli=milli, model=self._fleet.model)
        total = last.sum()
        placed = np.array(self._where, dtype=np.int64) != FAILED
        changes = np.zeros(len(self._where))
        if self._states:
            rows = np.array([row for row, _, _ in self._states], dtype=np.intp)
            now = count.of(
                cores=np.array([cores for _, cores, _ in self._states]),
                milli=np.array([milli for _, _, milli in self._states]).T,
                model=self._fleet.model[rows],
            )
            grown = np.empty(len(rows))
            for step, row in enumerate(rows.tolist()):
                grown[step], last[row] = now[step] - last[row], now[step]
            changes[placed] = grown
        summed: Reals = total + changes.cumsum()
        return summed
