"""Jobs arrive, wait, run and end, on a clock of their own: a heap of instants.

Theory of operation. At each instant first all end whose time is over, then all go who were sent away, then all arrive
whose time has come, then the policy says who starts and who is to go, one by one; each start is put on the ground
before the policy is asked for the next. A policy that decides by time alone names the instant at which it wants to be
asked again. Who shares a GPU may be slowed down: a job then has work left, done the slower the more others lie beside
it, and its end moves whenever they change. Who is sent away goes on until its grace is over; if it has not ended by
then its work is lost, and it waits anew.

What must always hold: a job starts only while it waits, and ends once; time never goes back; nothing is given twice
(`ground.py` looks). The same timetable and policy make the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Protocol

from aliquot_core.errors import DefectError
from aliquot_scheduler.simulating.timed.ground import Ground, Start, Stop
from aliquot_scheduler.simulating.timed.job import Job, Timetable

NEVER = float("inf")
# When nothing else is to come, a policy is asked again for so long since something happened last: more than it may keep
# anybody waiting by its settings. Who has not started then never will.
_GIVE_UP = 15 * 86_400.0


class StrayStartError(DefectError):
    """A policy started what does not wait."""


class StrayStopError(DefectError):
    """A policy sent away what does not run, or what goes already."""


class Policy(Protocol):
    """Who decides."""

    def arrived(self, job: Job, *, now: float) -> None:
        """A job waits from now on."""

    def ended(self, job: Job, *, now: float) -> None:
        """A job has ended; its room is free."""

    def actions(self, now: float) -> Iterable[Start | Stop]:
        """Who starts now, and who is to go; each is on the ground when the next is asked for."""

    def look_again(self, now: float) -> float:
        """When to ask again if nothing happens until then."""


class Watcher(Protocol):
    """Who is told of all that happens, to measure it."""

    def passed(self, now: float) -> None:
        """So late it is; what was known until now held until now."""

    def arrived(self, job: Job) -> None:
        """A job waits."""

    def started(self, start: Start) -> None:
        """A job runs."""

    def ended(self, job: Job) -> None:
        """A job has ended."""

    def stopped(self, start: Start) -> None:
        """A job had to go; it waits anew."""


class _Running:
    """A job that runs: the work that is left of it, and how fast that is done since when."""

    def __init__(self, start: Start, *, now: float, version: int) -> None:
        self.start = start
        self.left = start.job.runs
        self.speed = 1.0
        self.since = now
        # Only the latest word on its end counts: no other has the same number, of this run or one that was broken off.
        self.version = version
        self.goes = False


class Clockwork:
    """One run."""

    def __init__(
        self, timetable: Timetable, *, ground: Ground, policy: Policy, watcher: Watcher, slowdown: float = 0.0
    ) -> None:
        """`slowdown` is how much longer work takes for each other job on the same GPU: 0.1 is 10 %."""
        self._jobs = timetable.jobs
        self._ground = ground
        self._policy = policy
        self._watcher = watcher
        self._slowdown = slowdown
        self._next = 0
        self._waiting: set[int] = set()
        self._running: dict[int, _Running] = {}
        self._ends: list[tuple[float, int, int]] = []
        self._versions = count()
        # When those go who were sent away, unless they have ended by then: nobody who runs anew is among them.
        self._stops: list[tuple[float, int]] = []
        self.now = 0.0
        # When a job arrived, started or ended last.
        self._latest = 0.0
        # Whether nothing is to come any more.
        self.over = False

    def steps(self) -> Iterator[int]:
        """Run to the end, or as far as the caller asks; tells how many have arrived, instant by instant."""
        while (due := self._due()) < NEVER:
            self.now = due
            self._watcher.passed(due)
            self._end_due()
            self._stop_due()
            self._arrive_due()
            for action in self._policy.actions(self.now):
                if isinstance(action, Start):
                    self._start(action)
                else:
                    self._send_away(action)
            yield self._next
        self.over = True

    def _due(self) -> float:
        """The next instant at which anything happens."""
        while self._ends and not self._holds(self._ends[0]):
            heapq.heappop(self._ends)
        coming = self._jobs[self._next].at if self._next < len(self._jobs) else NEVER
        ending = self._ends[0][0] if self._ends else NEVER
        while self._stops and self._stops[0][1] not in self._running:
            heapq.heappop(self._stops)
        going = self._stops[0][0] if self._stops else NEVER
        asked = self._policy.look_again(self.now) if self._waiting else NEVER
        if asked > self._latest + _GIVE_UP:
            asked = NEVER
        return max(self.now, min(coming, ending, going, asked))

    def _holds(self, end: tuple[float, int, int]) -> bool:
        running = self._running.get(end[1])
        return running is not None and running.version == end[2]

    def _arrive_due(self) -> None:
        while self._next < len(self._jobs) and self._jobs[self._next].at <= self.now:
            job = self._jobs[self._next]
            self._next += 1
            self._waiting.add(job.number)
            self._latest = self.now
            self._watcher.arrived(job)
            self._policy.arrived(job, now=self.now)

    def _end_due(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            end = heapq.heappop(self._ends)
            if not self._holds(end):
                continue
            start = self._running.pop(end[1]).start
            self._latest = self.now
            self._ground.lift(start)
            self._watcher.ended(start.job)
            self._policy.ended(start.job, now=self.now)
            self._speed_anew(start)

    def _stop_due(self) -> None:
        while self._stops and self._stops[0][0] <= self.now:
            number = heapq.heappop(self._stops)[1]
            if number not in self._running:
                continue
            start = self._running.pop(number).start
            self._latest = self.now
            self._ground.lift(start)
            self._waiting.add(number)
            self._watcher.stopped(start)
            self._policy.ended(start.job, now=self.now)
            self._speed_anew(start)
            self._policy.arrived(start.job, now=self.now)

    def _send_away(self, stop: Stop) -> None:
        running = self._running.get(stop.job.number)
        if running is None or running.goes:
            raise StrayStopError(f"job {stop.job.number} was sent away, and does not run, or goes already")
        running.goes = True
        heapq.heappush(self._stops, (self.now + stop.grace, stop.job.number))

    def _start(self, start: Start) -> None:
        if start.job.number not in self._waiting:
            raise StrayStartError(f"job {start.job.number} was started, and does not wait")
        self._waiting.remove(start.job.number)
        self._latest = self.now
        self._ground.put(start)
        running = self._running[start.job.number] = _Running(start, now=self.now, version=next(self._versions))
        heapq.heappush(self._ends, (self.now + running.left, start.job.number, running.version))
        self._watcher.started(start)
        self._speed_anew(start)

    def _speed_anew(self, changed: Start) -> None:
        """Who lies on these GPUs has another number of others beside it now."""
        if not self._slowdown:
            return
        for one in self._ground.beside(changed):
            running = self._running[one.job.number]
            running.left = max(0.0, running.left - (self.now - running.since) * running.speed)
            running.since = self.now
            running.speed = 1.0 / (1.0 + self._slowdown * self._ground.mates(one))
            running.version = next(self._versions)
            heapq.heappush(self._ends, (self.now + running.left / running.speed, one.job.number, running.version))
