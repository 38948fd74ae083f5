"""What is told of a run in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from aliquot_scheduler.simulating.fragments import Reals
from aliquot_scheduler.simulating.timed.by_then import ByThen, by_then
from aliquot_scheduler.simulating.timed.job import Timetable
from aliquot_scheduler.simulating.timed.meter import Backlog, Meter
from aliquot_scheduler.simulating.workload import MILLI

_PERCENTILES = (50, 90, 99, 100)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: their mean, and what so many percent do not exceed."""

    mean: float
    percentiles: dict[str, float]


class InBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """While there was a backlog: for how long, GPUs given away in percent of all, and of what could have been."""

    hours: float
    allocated_pct: float | None
    of_bound_pct: float | None


class TimedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run; of jobs that want GPUs."""

    policy: str
    seed: int
    jobs: int
    started: int
    ended: int
    left_out: int
    wait: Spread
    completion: Spread
    # While any job waited, while all who were there asked for as many GPUs as there are, and while one waited that
    # wants one GPU or less.
    backlog: InBacklog
    full_backlog: InBacklog
    single_backlog: InBacklog
    # While all who were there asked for as many GPUs as there are; of who is slowed down nothing is known.
    by_then: ByThen | None = None
    makespan: float
    most_waiting: int
    # Jain's index over teams: of GPU time given in a backlog over asked for, and of mean waits. 1: all alike.
    jain_served: float | None
    jain_wait: float | None
    quota_violations: int
    # How often anybody was sent away, the most often that one was, and hours of GPUs that were lost by it.
    evictions: int = 0
    most_evicted: int = 0
    lost_hours: float = 0.0
    seconds: float
    # Whether it was broken off; who has not started by the end of one that was not never can.
    partial: bool
    # Hours, percent of all GPUs given away, jobs that wait.
    curve: list[tuple[float, float, int]] = []


def told(
    meter: Meter,
    timetable: Timetable,
    *,
    policy: str,
    seed: int,
    seconds: float,
    partial: bool,
    slowdown: float = 0.0,
) -> TimedReport:
    """Of a run as far as it went."""
    jobs = [job for job in timetable.jobs if timetable.needs[job.need].gpus]
    waits = meter.waits
    curve = [*meter.curve, (meter.now, meter.allocated, meter.waiting)]
    completions = [meter.ends[job.number] - job.at for job in jobs if job.number in meter.ends]
    by_team: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.number in waits:
            by_team[job.team].append(waits[job.number])
    served = [team.served / team.demanded for team in meter.teams.values() if team.demanded]
    return TimedReport(
        policy=policy,
        seed=seed,
        jobs=len(jobs),
        started=len(waits),
        ended=len(completions),
        left_out=timetable.left_out,
        wait=_spread(list(waits.values())),
        completion=_spread(completions),
        backlog=_in_backlog(meter.backlog, capacity=timetable.capacity),
        full_backlog=_in_backlog(meter.full_backlog, capacity=timetable.capacity),
        single_backlog=_in_backlog(meter.single_backlog, capacity=timetable.capacity),
        by_then=None if slowdown else by_then(meter.full_spans, timetable),
        makespan=max(meter.ends.values(), default=0.0),
        most_waiting=meter.most_waiting,
        jain_served=_jain(served),
        jain_wait=_jain(float(np.mean(some)) for some in by_team.values()),
        quota_violations=meter.violations,
        evictions=meter.stops.total(),
        most_evicted=max(meter.stops.values(), default=0),
        lost_hours=round(meter.lost / (MILLI * 3600.0), 3),
        seconds=round(seconds, 3),
        partial=partial,
        curve=[(at / 3600.0, 100.0 * milli / timetable.capacity, waiting) for at, milli, waiting in curve],
    )


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(mean=0.0, percentiles={})
    found: Reals = np.percentile(np.array(values), _PERCENTILES)
    return Spread(
        mean=float(np.mean(values)),
        percentiles={str(one): float(value) for one, value in zip(_PERCENTILES, found, strict=True)},
    )


def _in_backlog(backlog: Backlog, *, capacity: int) -> InBacklog:
    there = backlog.seconds > 0.0
    return InBacklog(
        hours=backlog.seconds / 3600.0,
        allocated_pct=100.0 * backlog.allocated / (backlog.seconds * capacity) if there else None,
        of_bound_pct=100.0 * backlog.allocated / backlog.bound if there and backlog.bound else None,
    )


def _jain(values: Iterable[float]) -> float | None:
    """The square of the sum over the number times the sum of squares."""
    some = list(values)
    squares = sum(value * value for value in some)
    return sum(some) ** 2 / (len(some) * squares) if squares else None
