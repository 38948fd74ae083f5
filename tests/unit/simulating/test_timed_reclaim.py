"""Who is sent away for whom in simulated time: by hand where it is small, and what must hold of all runs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec, Quota
from aliquot_scheduler.simulating.timed.clockwork import StrayStopError
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.ground import Start, Stop
from aliquot_scheduler.simulating.timed.job import Timetable
from support.timetables import HALF, OPEN, PAIR, WHOLE, Log, Row, machine, play, spans, timetable

OURS = TimedPolicy.ALIQUOT
OWNED = {"a": msgspec.structs.replace(OPEN, compute=Quota(guarantee=100)), "b": OPEN}
GRACE = 30.0


def test_an_owner_waits_for_no_more_than_the_grace_of_whom_it_lent_to() -> None:
    """The one who borrowed goes, begins anew when there is room, and does all of its work then."""
    asked = timetable(Row(0, 1_000, WHOLE, "b"), Row(10, 1_000, WHOLE, "b"), Row(100, 50, WHOLE, "a"))
    run = play(asked, OURS, specs=OWNED, grace=GRACE)
    # The younger of both goes at 100, is gone at 130, and begins anew when the owner's is done.
    assert spans(run) == [(0, 1_000), (180, 1_180), (130, 180)]
    told = run.report()
    assert (told.evictions, told.most_evicted) == (1, 1)
    assert told.lost_hours == pytest.approx(120 / 3_600, abs=0.001)
    assert run.meter.waits == {0: 0.0, 1: 50.0, 2: 30.0}
    assert (told.started, told.ended) == (3, 3)
    assert told.wait.mean == pytest.approx(80 / 3)


def test_nobody_is_sent_away_where_nothing_is_guaranteed_or_taken_back() -> None:
    """The same jobs wait until others end."""
    asked = timetable(Row(0, 1_000, WHOLE, "b"), Row(10, 1_000, WHOLE, "b"), Row(100, 50, WHOLE, "a"))
    never = {"a": msgspec.structs.replace(OWNED["a"], preemption=Preemption(reclaim="Never")), "b": OPEN}
    for specs in (never, {"a": OPEN, "b": OPEN}):
        run = play(asked, OURS, specs=specs, grace=GRACE)
        assert spans(run) == [(0, 1_000), (10, 1_010), (1_000, 1_050)]
        assert run.report().evictions == 0


def test_who_ends_within_its_grace_has_lost_nothing() -> None:
    """It was asked to go, and was done before it had to."""
    asked = timetable(Row(0, 1_000, WHOLE, "b"), Row(10, 100, WHOLE, "b"), Row(100, 50, WHOLE, "a"))
    run = play(asked, OURS, specs=OWNED, grace=GRACE)
    assert spans(run) == [(0, 1_000), (10, 110), (110, 160)]
    assert (run.report().evictions, run.report().lost_hours) == (0, 0.0)


def test_a_least_run_time_is_kept_without_any_event() -> None:
    """Nothing happens when it is over; the owner comes within the five minutes after which it is looked at again."""
    patient = msgspec.structs.replace(OPEN, preemption=Preemption(min_run_seconds=2_000))
    asked = timetable(*[Row(0, 9_000, WHOLE, "b") for _ in range(2)], Row(100, 50, WHOLE, "a"))
    start, _ = spans(play(asked, OURS, specs={"a": OWNED["a"], "b": patient}))[2]
    assert 2_000 <= start <= 2_300


def test_nobody_goes_for_one_that_then_does_not_fit() -> None:
    """A pair wants both GPUs, of which one is its owner's own: who borrowed the other stays until that one is free."""
    specs = OWNED | {"c": msgspec.structs.replace(OPEN, compute=Quota(guarantee=200))}
    asked = timetable(Row(0, 500, WHOLE, "a"), Row(1, 300, WHOLE, "b"), Row(2, 100, PAIR, "c"))
    run = play(asked, OURS, specs=specs)
    assert run.report().evictions == 0
    assert spans(run)[1:] == [(1, 301), (500, 600)]


def test_a_job_is_sent_away_once_and_only_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a policy says."""
    asked = timetable(Row(0, 10, HALF))
    start, stop = Start(job=asked.jobs[0], row=0, gpus=(0,)), Stop(job=asked.jobs[0], grace=5.0)
    for actions in ([stop], [start, stop, stop]):
        run = TimedRun(asked, policy=TimedPolicy.FIFO, specs={})
        monkeypatch.setattr(run._clockwork._policy, "actions", lambda _, all_of=actions: all_of)
        with pytest.raises(StrayStopError):
            next(run.steps())


# --- of all runs -----------------------------------------------------------------------------------------------------

_rows = st.lists(
    st.builds(
        Row,
        at=st.integers(0, 600).map(float),
        runs=st.integers(1, 400).map(float),
        need=st.just(WHOLE),
        team=st.sampled_from(["a", "b", "c"]),
    ),
    min_size=4,
    max_size=40,
)
_CARDS = 5
_TREE: dict[str, QueueSpec] = {
    "a": msgspec.structs.replace(OPEN, compute=Quota(guarantee=200)),
    "b": msgspec.structs.replace(OPEN, compute=Quota(guarantee=100)),
    "c": OPEN,
}


def _run(asked: Timetable, *, grace: float) -> tuple[TimedRun, Log]:
    specs = {team: _TREE[team] for team in asked.teams}
    run = TimedRun(asked, policy=OURS, specs=specs, settings=QueueSettings(hold=0.0), grace=grace)
    log = Log(run.meter)
    run._clockwork._watcher = log
    for _ in run.steps():
        pass
    return run, log


def _longest_owed(log: Log) -> float:
    """For how long at the most a team waited with less than it is guaranteed, at a stretch."""
    changes = sorted(
        [
            *((at, job.team, 1, 0) for at, job in log.arrivals),
            *((at, start.job.team, -1, 1) for at, start in log.starts),
            *((at, start.job.team, 1, -1) for at, start in log.stops),
            *((at, job.team, 0, -1) for at, job in log.ends),
        ]
    )
    waiting, held, owed, longest = Counter[str](), Counter[str](), dict[str, float](), 0.0
    for at, some in groupby(changes, key=lambda change: change[0]):
        for _, team, more, holds in some:
            waiting[team] += more
            held[team] += holds
        longest = max([longest, *(at - since for since in owed.values())])
        due = [team for team, spec in _TREE.items() if 100 * held[team] < (spec.compute.guarantee or 0)]
        owed = {team: owed.get(team, at) for team in due if waiting[team]}
    assert not owed
    return longest


@given(rows=_rows, grace=st.sampled_from([0.0, 7.0, 30.0]))
@settings(max_examples=60, deadline=None)
def test_a_guarantee_that_is_asked_for_is_met_within_the_grace(rows: list[Row], grace: float) -> None:
    """A team that waits never has less for longer; nobody is lost, and whoever goes goes for one of another team."""
    asked = timetable(*rows, machines=[machine(0), machine(1, gpus=_CARDS - 2)])
    run, log = _run(asked, grace=grace)
    assert sorted(run.meter.ends) == [job.number for job in asked.jobs]
    assert _longest_owed(log) <= grace
    for at, stop in log.stops:
        assert any(when == at and start.job.team != stop.job.team for when, start in log.starts)


@given(rows=_rows)
@settings(max_examples=10, deadline=None)
def test_the_same_timetable_makes_the_same_run(rows: list[Row]) -> None:
    """To the last second, GPU and eviction."""
    asked = timetable(*rows, machines=[machine(0), machine(1, gpus=_CARDS - 2)])
    first, second = _run(asked, grace=7.0)[1], _run(asked, grace=7.0)[1]
    assert (first.starts, first.stops) == (second.starts, second.stops)
