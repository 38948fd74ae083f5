"""How much GPU time anybody could have given by an instant: no policy passes this bound, whatever it knows and does.

Not even one that knew all that was to come, moved, cut and stopped pods at no cost, and so had quite another backlog.
Take any instant before. Until then nobody has given more than with GPUs for all at once, when each pod would have begun
as it came. From then on nobody gives more than there is of GPUs, cores and memory, for all pods of the list. The least
of these sums is a bound, and it is found where a pod comes or would have ended, since it is linear between.

Given is work that was of use: whoever is stopped, and begins anew, had been given nothing. And work must take as long
as it does alone, so nothing is said of runs in which pods slow one another down.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from aliquot_scheduler.simulating.fragments import Reals
from aliquot_scheduler.simulating.timed.bound import Bound
from aliquot_scheduler.simulating.timed.job import Timetable


class Span(msgspec.Struct, frozen=True):
    """A time in which nothing changed, how much had been given before it, and how much was given away in it."""

    since: float
    seconds: float
    given: float
    allocated: int


class ByThen(msgspec.Struct, frozen=True, kw_only=True):
    """GPU time given, in percent of what anybody could have given by then: the mean over a backlog, and the least."""

    mean_pct: float
    least_pct: float


class Possible:
    """What could have been given of these pods' work, in milli seconds."""

    def __init__(self, timetable: Timetable) -> None:
        needs = timetable.needs
        jobs = [job for job in timetable.jobs if needs[job.need].gpus]
        counts = np.bincount(np.array([job.need for job in jobs], dtype=np.int64), minlength=len(needs))
        bound = Bound(machines=timetable.machines, needs=needs, capacity=timetable.capacity)
        self._most = bound.most(counts)
        asks = [float(needs[job.need].total) for job in jobs]
        changes = [(job.at, ask) for job, ask in zip(jobs, asks, strict=True)]
        changes += [(job.at + job.runs, -ask) for job, ask in zip(jobs, asks, strict=True)]
        changes = [(0.0, 0.0), *sorted(changes)]
        self._instants: Reals = np.array([at for at, _ in changes])
        # How much is asked for from each instant on, and would have been given by it, with GPUs for all.
        self._asked: Reals = np.cumsum([ask for _, ask in changes])
        spans = np.diff(self._instants)
        self._with_all: Reals = np.concatenate(([0.0], np.cumsum(self._asked[:-1] * spans)))
        self._least: Reals = np.minimum.accumulate(self._with_all - self._most * self._instants)

    def by(self, instants: Reals) -> Reals:
        """The bound at each of these."""
        last = np.searchsorted(self._instants, instants, side="right") - 1
        with_all = self._with_all[last] + self._asked[last] * (instants - self._instants[last])
        found: Reals = np.minimum(with_all, self._least[last] + self._most * instants)
        return found


def by_then(spans: Sequence[Span], timetable: Timetable) -> ByThen | None:
    """Of what was given in these spans, each taken at its middle; nothing if there are none."""
    if not spans:
        return None
    seconds: Reals = np.array([span.seconds for span in spans])
    middles: Reals = np.array([span.since for span in spans]) + seconds / 2
    given: Reals = np.array([span.given + span.allocated * span.seconds / 2 for span in spans])
    parts = 100.0 * given / Possible(timetable).by(middles)
    return ByThen(mean_pct=float(np.average(parts, weights=seconds)), least_pct=float(parts.min()))
