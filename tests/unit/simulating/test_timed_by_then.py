"""The bound on GPU time given by an instant: by hand where it is small, and passed by nobody who keeps to the rules."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.simulating.timed.by_then import Possible
from aliquot_scheduler.simulating.timed.clockwork import Clockwork
from aliquot_scheduler.simulating.timed.contest import TimedPolicy
from aliquot_scheduler.simulating.timed.ground import Ground
from aliquot_scheduler.simulating.timed.job import Timetable
from aliquot_scheduler.simulating.timed.meter import Meter
from aliquot_scheduler.simulating.timed.queued import Queued
from aliquot_scheduler.simulating.workload import Need
from support.timetables import HALF, PAIR, PLAIN, WHOLE, Log, Row, machine, play, timetable, timetables

GRAIN = 1e-6


# --- by hand ---------------------------------------------------------------------------------------------------------

ONE = [machine(gpus=1)]
LARGE = Need(cores=8_000, memory=1_024, gpus=1, milli=1_000)


def by(asked: Timetable, *instants: float) -> list[float]:
    """The bound at each."""
    found: list[float] = Possible(asked).by(np.array(instants)).tolist()
    return found


@pytest.mark.parametrize(
    ("rows", "instant", "seconds"),
    [
        # Two that ask for the one GPU there is: it is in use all the time, or both have ended.
        ([Row(0, 100, WHOLE)] * 2, 150, 150),
        ([Row(0, 100, WHOLE)] * 2, 250, 200),
        # Nobody gives what has not come yet, nor more than is asked, nor for longer than it runs.
        ([Row(40, 20, WHOLE)], 30, 0),
        ([Row(40, 20, WHOLE)], 50, 10),
        ([Row(40, 20, WHOLE)], 100, 20),
        ([Row(0, 100, HALF)], 60, 30),
        # Idle until 100, and then more than there is: what is idle once is not given later.
        ([Row(0, 10, WHOLE), *[Row(100, 10, WHOLE)] * 5], 120, 30),
        ([Row(0, 5, WHOLE), *[Row(40, 200, WHOLE)] * 3], 60, 25),
        # In use until 50 and from 90 on.
        ([*[Row(0, 10, WHOLE)] * 5, Row(90, 50, WHOLE)], 100, 60),
        # Who came late can't have been given anything before, whatever the others left.
        ([Row(0, 10, WHOLE), Row(50, 200, HALF)], 60, 15),
        ([Row(0, 10, PLAIN), Row(50, 200, HALF)], 60, 5),
    ],
)
def test_it_is_as_worked_out_by_hand(rows: list[Row], instant: float, seconds: float) -> None:
    """In seconds of one GPU."""
    assert by(timetable(*rows, machines=ONE), instant) == pytest.approx([1_000 * seconds])


def test_cores_that_run_out_bound_it_too() -> None:
    """Of four that ask a GPU and 8 cores each only two and a half have the cores."""
    asked = timetable(*[Row(0, 100, LARGE)] * 4, machines=[machine(gpus=4, cores=20_000)])
    assert by(asked, 50) == pytest.approx([1_000 * 2.5 * 50])


# --- nobody passes it ------------------------------------------------------------------------------------------------


def watched(asked: Timetable, *, guarantee: int) -> Log:
    """What our own policy does with these, where owners send others away."""
    ground, meter = Ground(machines=asked.machines, needs=asked.needs), Meter(asked, limits={})
    specs = {team: QueueSpec(namespaces=("*",), compute=Quota(guarantee=guarantee)) for team in asked.teams}
    policy = Queued(asked, ground=ground, specs=specs, settings=QueueSettings(), grace=5.0)
    log = Log(meter)
    for _ in Clockwork(asked, ground=ground, policy=policy, watcher=log).steps():
        pass
    return log


def given_by(log: Log, asked: Timetable, instant: float) -> float:
    """Milli seconds of work, by what was put down; of who had to go only what was not lost by then."""
    starts = {start.job.number: at for at, start in log.starts if at <= instant}
    ends = {job.number: at for at, job in log.ends if at <= instant}
    stops = {start.job.number: at for at, start in log.stops if at <= instant}
    return sum(
        (ends.get(number, instant) - since) * asked.needs[asked.jobs[number].need].total
        for number, since in starts.items()
        if stops.get(number, since) <= since
    )


@given(timetables, st.sampled_from([0, 100, 250]), st.lists(st.integers(1, 900), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_our_own_policy_never_passes_it(asked: Timetable, guarantee: int, instants: list[int]) -> None:
    """Also where pods have to go and begin anew."""
    log = watched(asked, guarantee=guarantee)
    for instant, most in zip(instants, by(asked, *instants), strict=True):
        assert given_by(log, asked, float(instant)) <= most + GRAIN


def poured(asked: Timetable, *, until: int) -> list[float]:
    """What whoever may cut and stop pods at will has given by each second, the longest left before all others."""
    left = {job.number: job.runs for job in asked.jobs if asked.needs[job.need].gpus}
    total, found = 0.0, [0.0]
    for second in range(until):
        room = float(asked.capacity)
        for number in sorted(left, key=lambda number: -left[number]):
            job = asked.jobs[number]
            asks = asked.needs[job.need].total
            part = min(left[number], 1.0, room / asks) if job.at <= second else 0.0
            left[number] -= part
            room -= part * asks
            total += part * asks
        found.append(total)
    return found


@given(timetables, st.lists(st.integers(1, 900), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_nor_does_whoever_cuts_and_stops_pods_at_no_cost(asked: Timetable, instants: list[int]) -> None:
    """Played second by second: on machines with cores for all, so that GPUs alone are what lacks."""
    roomy = timetable(
        *(Row(job.at, job.runs, asked.needs[job.need], job.team) for job in asked.jobs),
        machines=[machine(0, cores=10**6), machine(1, gpus=3, cores=10**6)],
    )
    done = poured(roomy, until=max(instants))
    for instant, most in zip(instants, by(roomy, *instants), strict=True):
        assert done[instant] <= most + GRAIN


# --- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", list(TimedPolicy))
def test_whoever_gives_all_that_can_be_given_is_told_so(policy: TimedPolicy) -> None:
    """One GPU that is never idle while anybody waits."""
    asked = timetable(*[Row(at, 30, WHOLE) for at in range(0, 100, 10)], machines=ONE)
    told = play(asked, policy).report().by_then
    assert told is not None
    assert (told.mean_pct, told.least_pct) == pytest.approx((100.0, 100.0))


def test_what_stood_idle_is_missing_from_then_on() -> None:
    """A pair waits beside a free GPU for 50 s: of 100 that could have been given 50 are, and it is made up slowly."""
    rows = [Row(0, 50, WHOLE), Row(0, 200, PAIR), Row(0, 10, PAIR)]
    told = play(timetable(*rows), settings=QueueSettings(hold=0.0)).report().by_then
    assert told is not None
    assert told.least_pct == pytest.approx(50.0)
    assert 50.0 < told.mean_pct < 100.0


def test_nothing_is_told_where_it_is_not_known() -> None:
    """Without a backlog there is none to look at, and slowed down pods hold GPUs for longer than they run."""
    alone = timetable(Row(0, 10, HALF))
    assert play(alone).report().by_then is None
    many = timetable(*[Row(0, 10, HALF)] * 9)
    assert play(many).report().by_then is not None
    assert play(many, slowdown=0.1).report().by_then is None


def test_spans_follow_one_another() -> None:
    """What is put down of a full backlog neither overlaps nor forgets what was given between."""
    run = play(timetable(*[Row(at, 30, WHOLE) for at in (0, 0, 0, 200, 200, 200)]))
    spans = run.meter.full_spans
    assert sum(span.seconds for span in spans) == run.meter.full_backlog.seconds == 60
    for span, later in pairwise(spans):
        assert span.since + span.seconds <= later.since
        assert span.given + span.seconds * span.allocated <= later.given
    assert spans[-1].given == 1_000 * (30 * 3)


def test_what_was_lost_was_not_given() -> None:
    """A borrower goes for an owner after 50 of its 100 s, and begins anew: what both needed is given, and no more."""
    specs = {"a": QueueSpec(namespaces=("*",), compute=Quota(guarantee=100)), "b": QueueSpec(namespaces=("*",))}
    rows = [Row(0, 100, WHOLE, "b"), Row(45, 20, WHOLE, "a"), Row(45, 20, HALF, "b")]
    run = play(timetable(*rows, machines=ONE), TimedPolicy.ALIQUOT, specs=specs, grace=5.0)
    assert run.meter.lost == 1_000 * 50
    assert run.meter.given == 1_000 * (100 + 20 + 10)
    told = run.report().by_then
    assert told is not None
    # It is behind by what was lost: 15 s after that have been given of the 65 that could have been.
    assert told.least_pct < 50
