"""What is measured of a run: sums over time while it goes on, and when each job started and ended.

Only jobs that want GPUs count; others take cores and memory. There is a backlog while one that wants GPUs waits; it is
*full* while all who are there ask for as many GPUs as there are, and *single* while one waits that wants one GPU or
less: who wants eight of one machine may wait beside many that stand idle, until others have ended there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from aliquot_scheduler.simulating.timed.bound import Bound
from aliquot_scheduler.simulating.timed.by_then import Span
from aliquot_scheduler.simulating.timed.ground import Start
from aliquot_scheduler.simulating.timed.job import Job, Timetable

# Instants of the curve, at most twice as many.
_POINTS = 600
_Point = tuple[float, int, int]


class Backlog:
    """Sums over the time in which there was one."""

    def __init__(self) -> None:
        self.seconds = 0.0
        # Milli seconds given away, and that could have been.
        self.allocated = 0.0
        self.bound = 0.0

    def add(self, seconds: float, *, allocated: float, bound: float) -> None:
        """So long it was so."""
        self.seconds += seconds
        self.allocated += seconds * allocated
        self.bound += seconds * bound


class TeamSums:
    """What a team holds and asks for now, in milli, and both times seconds while there was a backlog."""

    def __init__(self) -> None:
        self.held = 0
        self.asked = 0
        self.served = 0.0
        self.demanded = 0.0


class Meter:
    """Watches a run."""

    def __init__(self, timetable: Timetable, *, limits: Mapping[str, int]) -> None:
        """`limits` is what each team may hold at most, in milli; who is not named has no limit."""
        self._capacity = timetable.capacity
        self._totals = [need.total for need in timetable.needs]
        self._single = [need.gpus == 1 for need in timetable.needs]
        self._limits = limits
        self._bound = Bound(machines=timetable.machines, needs=timetable.needs, capacity=timetable.capacity)
        self._there = np.zeros(len(timetable.needs), dtype=np.int64)
        self.now = 0.0
        self.allocated = 0
        self.asked = 0
        self.waiting = 0
        self.waiting_single = 0
        self.most_waiting = 0
        self.backlog = Backlog()
        self.full_backlog = Backlog()
        self.single_backlog = Backlog()
        # Milli seconds of work that was given and is not lost, and how that went on while the backlog was full.
        self.given = 0.0
        self.full_spans: list[Span] = []
        self.teams: dict[str, TeamSums] = defaultdict(TeamSums)
        # When each job that wants GPUs started at last and ended, and how long it has waited in all; by its number.
        self.starts: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.waits: dict[int, float] = {}
        # Since when those wait who were sent away.
        self._again: dict[int, float] = {}
        # How often each was sent away, and milli seconds that were lost by it.
        self.stops: Counter[int] = Counter()
        self.lost = 0.0
        # Starts by which a team came over its limit.
        self.violations = 0
        # Instants, milli given away from then on until the next, jobs that wait; thinned to means over time.
        self.curve: list[_Point] = []

    def passed(self, now: float) -> None:
        """Until now all was as it was."""
        seconds = now - self.now
        if not seconds:
            return
        self.curve.append((self.now, self.allocated, self.waiting))
        if len(self.curve) > 2 * _POINTS:
            self.curve = _halved(self.curve, end=now)
        if self.waiting:
            self._count(seconds)
        self.given += seconds * self.allocated
        self.now = now

    def arrived(self, job: Job) -> None:
        """It waits."""
        if total := self._totals[job.need]:
            self._there[job.need] += 1
            self.asked += total
            self.teams[job.team].asked += total
            self.waiting += 1
            self.waiting_single += self._single[job.need]

    def started(self, start: Start) -> None:
        """It runs."""
        job = start.job
        if total := self._totals[job.need]:
            self.waiting -= 1
            self.waiting_single -= self._single[job.need]
            self.allocated += total
            self.starts[job.number] = self.now
            since = self._again.pop(job.number, job.at)
            self.waits[job.number] = self.waits.get(job.number, 0.0) + self.now - since
            team = self.teams[job.team]
            team.held += total
            self.violations += team.held > self._limits.get(job.team, team.held)

    def stopped(self, start: Start) -> None:
        """It waits anew, and what it has done is lost."""
        job = start.job
        if total := self._totals[job.need]:
            self.waiting += 1
            self.waiting_single += self._single[job.need]
            self.allocated -= total
            self.teams[job.team].held -= total
            self.stops[job.number] += 1
            lost = total * (self.now - self.starts[job.number])
            self.lost += lost
            self.given -= lost
            self._again[job.number] = self.now

    def ended(self, job: Job) -> None:
        """It has ended."""
        if total := self._totals[job.need]:
            self._there[job.need] -= 1
            self.asked -= total
            self.allocated -= total
            self.ends[job.number] = self.now
            self.teams[job.team].asked -= total
            self.teams[job.team].held -= total

    def _count(self, seconds: float) -> None:
        self.most_waiting = max(self.most_waiting, self.waiting)
        bound = self._bound.most(self._there)
        self.backlog.add(seconds, allocated=self.allocated, bound=bound)
        if self.asked >= self._capacity:
            self.full_backlog.add(seconds, allocated=self.allocated, bound=bound)
            self.full_spans.append(Span(self.now, seconds, self.given, self.allocated))
        if self.waiting_single:
            self.single_backlog.add(seconds, allocated=self.allocated, bound=bound)
        for team in self.teams.values():
            team.demanded += seconds * team.asked
            team.served += seconds * team.held


def _halved(curve: Sequence[_Point], *, end: float) -> list[_Point]:
    """Each two as one that holds their mean over time: what was given away in all stays what it was."""
    instants = [*(at for at, _, _ in curve), end]
    return [_mean(curve[at : at + 2], instants[at : at + 3]) for at in range(0, len(curve), 2)]


def _mean(points: Sequence[_Point], instants: Sequence[float]) -> _Point:
    spans = [later - now for now, later in pairwise(instants)]
    milli = sum(span * held for span, (_, held, _) in zip(spans, points, strict=True))
    waiting = sum(span * wait for span, (_, _, wait) in zip(spans, points, strict=True))
    return points[0][0], round(milli / sum(spans)), round(waiting / sum(spans))
