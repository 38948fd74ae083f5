"""First come, first served, with back-filling: who does not fit is passed by those behind who do.

The machine is the one that best fit takes, and for a share the GPU with the least room left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from aliquot_scheduler.simulating.policies import BestFit
from aliquot_scheduler.simulating.timed.clockwork import NEVER
from aliquot_scheduler.simulating.timed.ground import Ground, Start
from aliquot_scheduler.simulating.timed.job import Job
from aliquot_scheduler.simulating.timed.openings import Openings

# Of a line in which nobody waits.
_NOBODY = np.iinfo(np.int64).max


class Fifo:
    """The policy; equal jobs stand one behind the other, so of each kind only the first is looked at."""

    def __init__(self, *, ground: Ground) -> None:
        self._ground = ground
        self._rating = BestFit(ground.fleet)
        self._openings = Openings(fleet=ground.fleet, needs=ground.needs)
        self._lines: list[deque[Job]] = [deque() for _ in ground.needs]
        self._heads = np.full(len(ground.needs), _NOBODY, dtype=np.int64)
        self._where: dict[int, int] = {}

    def arrived(self, job: Job, *, now: float) -> None:
        """It goes to the end of its line."""
        del now
        self._lines[job.need].append(job)
        self._heads[job.need] = self._lines[job.need][0].number

    def ended(self, job: Job, *, now: float) -> None:
        """Its machine has more room."""
        del now
        self._openings.changed(self._where.pop(job.number))

    def look_again(self, now: float) -> float:
        """Nothing changes by time alone."""
        del now
        return NEVER

    def actions(self, now: float) -> Iterator[Start]:
        """The oldest that has room, again and again."""
        del now
        while True:
            ages = np.where(self._openings.able.any(axis=1), self._heads, _NOBODY)
            kind = int(ages.argmin())
            if ages[kind] == _NOBODY:
                return
            line = self._lines[kind]
            job = line.popleft()
            self._heads[kind] = line[0].number if line else _NOBODY
            start = self._place(job)
            yield start
            self._where[job.number] = start.row
            self._openings.changed(start.row)

    def _place(self, job: Job) -> Start:
        need = self._ground.needs[job.need]
        some = np.flatnonzero(self._openings.able[job.need])
        found = self._rating.rate(need, some)
        best = int(found.cost.argmin())
        row = int(some[best])
        if not need.gpus:
            return Start(job=job, row=row, gpus=())
        if need.shared:
            return Start(job=job, row=row, gpus=(int(found.gpu[best]),))
        takes = self._ground.fleet.takes(need, np.array([row]))[:, 0]
        return Start(job=job, row=row, gpus=tuple(np.flatnonzero(takes)[: need.gpus].tolist()))
