"""Small workloads in time, and runs of them of which all that happened is put down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from hypothesis import strategies as st

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.ground import Start
from aliquot_scheduler.simulating.timed.job import Job, Timetable
from aliquot_scheduler.simulating.timed.meter import Meter
from aliquot_scheduler.simulating.workload import MILLI, Machine, Need

WHOLE = Need(cores=1_000, memory=1_024, gpus=1, milli=MILLI)
HALF = msgspec.structs.replace(WHOLE, milli=500)
PAIR = msgspec.structs.replace(WHOLE, gpus=2)
PLAIN = Need(cores=1_000, memory=1_024)
OPEN = QueueSpec(namespaces=("*",))


class Row(msgspec.Struct, frozen=True):
    """A job: when it comes, how long it runs, what it needs, whose it is."""

    at: float
    runs: float
    need: Need
    team: str = "a"


def machine(number: int = 0, *, gpus: int = 2, cores: int = 64_000) -> Machine:
    """A machine with some GPUs."""
    return Machine(name=f"n{number}", cores=cores, memory=65_536, gpus=gpus, model="G2")


def timetable(*rows: Row, machines: Sequence[Machine] = ()) -> Timetable:
    """These jobs, on one machine of two GPUs if no others are named."""
    by_time = sorted(rows, key=lambda row: row.at)
    needs = tuple(dict.fromkeys(row.need for row in by_time))
    jobs = tuple(
        Job(number=number, at=row.at, runs=row.runs, need=needs.index(row.need), team=row.team, user=row.team)
        for number, row in enumerate(by_time)
    )
    return Timetable(machines=tuple(machines) or (machine(),), needs=needs, jobs=jobs)


def play(
    asked: Timetable,
    policy: TimedPolicy = TimedPolicy.FIFO,
    *,
    specs: Mapping[str, QueueSpec] | None = None,
    slowdown: float = 0.0,
    settings: QueueSettings | None = None,
    grace: float = 0.0,
) -> TimedRun:
    """A run that has ended."""
    queues = dict.fromkeys(asked.teams, OPEN) if specs is None else specs
    run = TimedRun(asked, policy=policy, specs=queues, slowdown=slowdown, settings=settings, grace=grace)
    for _ in run.steps():
        pass
    return run


def spans(run: TimedRun) -> list[tuple[float, float]]:
    """When each job started and ended, in the order of their arrival."""
    meter: Meter = run.meter
    return [(meter.starts[number], meter.ends[number]) for number in sorted(meter.starts)]


_needs = st.builds(
    Need,
    cores=st.sampled_from([0, 1_000, 8_000, 16_000]),
    memory=st.sampled_from([0, 4_096]),
    gpus=st.just(1),
    milli=st.sampled_from([50, 200, 460, 500, 810, 1_000]),
)
_several = st.builds(
    Need, cores=st.sampled_from([0, 8_000]), memory=st.just(1_024), gpus=st.just(2), milli=st.just(MILLI)
)
_plain = st.builds(Need, cores=st.sampled_from([500, 12_000]), memory=st.just(1_024))
_rows = st.builds(
    Row,
    at=st.integers(0, 500).map(float),
    runs=st.integers(0, 400).map(float),
    need=st.one_of(_needs, _needs, _several, _plain),
    team=st.sampled_from(["a", "b", "c"]),
)
timetables = st.lists(_rows, min_size=1, max_size=40).map(
    lambda rows: timetable(*rows, machines=[machine(0, cores=24_000), machine(1, gpus=3, cores=20_000)])
)


class Log:
    """A watcher that puts down who lay where, beside what it watches for."""

    def __init__(self, watcher: Meter) -> None:
        self._watcher = watcher
        self.starts: list[tuple[float, Start]] = []
        self.ends: list[tuple[float, Job]] = []
        self.stops: list[tuple[float, Start]] = []
        self.arrivals: list[tuple[float, Job]] = []
        self.now = 0.0

    def passed(self, now: float) -> None:
        """Time goes on, never back."""
        assert now >= self.now
        self.now = now
        self._watcher.passed(now)

    def arrived(self, job: Job) -> None:
        """Put it down."""
        self.arrivals.append((self.now, job))
        self._watcher.arrived(job)

    def started(self, start: Start) -> None:
        """Put it down."""
        self.starts.append((self.now, start))
        self._watcher.started(start)

    def stopped(self, start: Start) -> None:
        """Put it down."""
        self.stops.append((self.now, start))
        self._watcher.stopped(start)

    def ended(self, job: Job) -> None:
        """Put it down."""
        self.ends.append((self.now, job))
        self._watcher.ended(job)
