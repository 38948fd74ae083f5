"""Runs in time: worked out by hand where they are small, and what must hold of all of them."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.deciding.appraiser import Appraiser, Known
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.simulating.timed.clockwork import StrayStartError
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.ground import Ground, OverGrantError, Start
from aliquot_scheduler.simulating.timed.job import Timetable, in_whole_gpus
from aliquot_scheduler.simulating.timed.meter import Meter
from aliquot_scheduler.simulating.timed.queued import Queued
from aliquot_scheduler.simulating.timed.told import told
from support.timetables import HALF, OPEN, PAIR, PLAIN, WHOLE, Log, Row, machine, play, spans, timetable, timetables

ALL = list(TimedPolicy)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_two_halves_take_a_gpu_each_without_sharing_and_one_with_it() -> None:
    """So who wants a whole one waits until a half has ended, or starts at once."""
    asked = timetable(Row(0, 100, HALF), Row(0, 60, HALF), Row(0, 50, WHOLE), Row(10, 10, WHOLE))
    assert spans(play(asked, TimedPolicy.WHOLE_GPU_FIFO)) == [(0, 100), (0, 60), (60, 110), (100, 110)]
    shared = [(0, 100), (0, 60), (0, 50), (50, 60)]
    assert spans(play(asked, TimedPolicy.FIFO)) == shared
    assert spans(play(asked, TimedPolicy.ALIQUOT)) == shared


@pytest.mark.parametrize("policy", ALL)
def test_who_does_not_fit_is_passed_by_who_does(policy: TimedPolicy) -> None:
    """Back-filling: a pair waits for both GPUs while small ones come and go."""
    asked = timetable(Row(0, 100, WHOLE), Row(1, 10, PAIR), Row(2, 30, WHOLE), Row(3, 60, WHOLE))
    found = spans(play(asked, policy, settings=QueueSettings(hold=0.0)))
    assert found == [(0, 100), (100, 110), (2, 32), (32, 92)]


def test_the_cores_of_a_machine_keep_waiting_whom_its_gpus_would_not() -> None:
    """And pods without GPUs that end let those in, whatever policy."""
    asked = timetable(Row(0, 40, PLAIN), Row(1, 10, HALF), machines=[machine(cores=1_500)])
    for policy in ALL:
        assert spans(play(asked, policy)) == [(40, 50)], policy


def test_who_was_refused_for_want_of_cores_is_asked_again_when_they_are_free() -> None:
    """Also when it is a pod without GPUs that gives them back, of which no card tells."""
    plain, large = (msgspec.structs.replace(need, cores=2_000) for need in (PLAIN, HALF))
    asked = timetable(Row(0, 40, plain), Row(1, 10, large), Row(2, 100, HALF), machines=[machine(cores=3_000)])
    for policy in ALL:
        assert spans(play(asked, policy)) == [(40, 50), (2, 102)], policy


def test_who_shares_a_gpu_is_slowed_down_for_as_long_as_it_does() -> None:
    """Worked out by hand: half as slow again beside one other."""
    together = timetable(Row(0, 100, HALF), Row(0, 100, HALF), machines=[machine(gpus=1)])
    assert spans(play(together, slowdown=0.5)) == [(0, 150), (0, 150)]
    apart = timetable(Row(0, 100, HALF), Row(50, 100, HALF), machines=[machine(gpus=1)])
    assert spans(play(apart, slowdown=0.5)) == [(0, 125), (50, 175)]
    assert spans(play(apart, TimedPolicy.WHOLE_GPU_FIFO, slowdown=0.5)) == [(0, 100), (100, 200)]


def test_a_team_that_came_late_is_not_behind_all_of_a_team_that_came_in_bulk() -> None:
    """First come, first served lets the bulk run first; fair shares take turns."""
    bulk = [Row(0, 10, WHOLE, "bulk") for _ in range(20)]
    asked = timetable(*bulk, Row(1, 10, WHOLE, "late"), machines=[machine(gpus=1)])
    assert spans(play(asked, TimedPolicy.FIFO))[-1] == (200, 210)
    assert spans(play(asked, TimedPolicy.ALIQUOT))[-1] == (10, 20)


def test_a_team_never_holds_more_than_its_queues_limit() -> None:
    """The queues keep it, and it is counted where nothing does."""
    asked = timetable(*[Row(0, 10, WHOLE, "a") for _ in range(4)])
    limited = {"a": msgspec.structs.replace(OPEN, compute=Quota(limit=100))}
    run = play(asked, TimedPolicy.ALIQUOT, specs=limited)
    assert spans(run) == [(0, 10), (10, 20), (20, 30), (30, 40)]
    assert run.meter.violations == 0
    run.meter._limits = {"a": 500}
    run.meter.passed(50.0)
    run.meter.arrived(asked.jobs[0])
    run.meter.started(Start(job=asked.jobs[0], row=0, gpus=(0,)))
    assert run.meter.violations == 1


def test_who_can_never_start_is_told_and_does_not_keep_the_run_from_ending() -> None:
    """It asks for more than its queue may ever give."""
    asked = timetable(Row(0, 10, HALF), Row(0, 10, WHOLE), Row(5, 10, HALF))
    limited = {"a": msgspec.structs.replace(OPEN, compute=Quota(limit=50))}
    report = play(asked, TimedPolicy.ALIQUOT, specs=limited).report()
    assert (report.jobs, report.started, report.ended, report.partial) == (3, 2, 2, False)
    assert report.makespan == 20.0


def test_measures_by_hand() -> None:
    """Two jobs on one GPU, one after the other: they wait 0 and 10 s, and all of the GPU is given away meanwhile."""
    asked = timetable(Row(0, 10, WHOLE, "a"), Row(0, 30, WHOLE, "b"), machines=[machine(gpus=1)])
    report = play(asked).report()
    assert (report.wait.mean, report.completion.mean, report.makespan) == (5.0, 25.0, 40.0)
    assert report.wait.percentiles == {"50": 5.0, "90": 9.0, "99": pytest.approx(9.9), "100": 10.0}
    assert report.backlog.hours == pytest.approx(10 / 3600)
    assert (report.single_backlog.allocated_pct, report.backlog.of_bound_pct) == (100.0, 100.0)
    # Team b waited through all of the backlog, team a had all it asked for.
    assert (report.jain_served, report.jain_wait) == (0.5, 0.5)
    assert (report.jobs, report.ended, report.most_waiting, report.partial) == (2, 2, 1, False)


def test_who_has_had_all_it_asked_for_asks_for_nothing_more() -> None:
    """A team is measured by what it asks for now: here both have half of it, one job each waits as long as one runs."""
    first = [Row(0, 10, WHOLE, "a"), Row(1, 10, WHOLE, "a")]
    second = [Row(20, 10, WHOLE, "b"), Row(21, 10, WHOLE, "b")]
    report = play(timetable(*first, *second, machines=[machine(gpus=1)])).report()
    assert report.jain_served == 1.0


def test_a_backlog_for_want_of_cores_is_not_a_full_one() -> None:
    """Cores for one and a half of two halves on two GPUs: a quarter is given away of three eighths that could be."""
    asked = timetable(Row(0, 10, HALF), Row(0, 10, HALF), machines=[machine(cores=1_500)])
    report = play(asked).report()
    assert (report.full_backlog.hours, report.full_backlog.allocated_pct) == (0.0, None)
    assert report.backlog == report.single_backlog
    assert report.backlog.allocated_pct == 25.0
    assert report.backlog.of_bound_pct == pytest.approx(100 * 500 / 750)


def test_who_waits_for_a_whole_machine_makes_no_line_for_one_gpu() -> None:
    """A pair beside a GPU that stands idle: the backlog is full, and nobody who waits could take that GPU."""
    report = play(timetable(Row(0, 10, WHOLE), Row(0, 10, PAIR))).report()
    assert (report.single_backlog.hours, report.full_backlog.allocated_pct) == (0.0, 50.0)


# --- what the centre is told -----------------------------------------------------------------------------------------


def test_usage_counts_while_a_pod_runs_and_no_longer() -> None:
    """Who used the GPU for ten seconds a day ago is before who used it for a thousand."""
    long_ago = [Row(0, 1_000, WHOLE, "b"), Row(2_000, 10, WHOLE, "a")]
    now = [Row(80_000, 50, WHOLE, "b"), Row(80_000, 50, WHOLE, "b"), Row(80_001, 50, WHOLE, "a")]
    asked = timetable(*long_ago, *now, machines=[machine(gpus=1)])
    assert [start for start, _ in spans(play(asked, TimedPolicy.ALIQUOT))[2:]] == [80_000, 80_100, 80_050]


def test_the_mix_is_learnt_as_pods_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are worked out anew after ten requests, and when half as many more have come."""
    looks: list[int] = []
    renew = Appraiser.renew

    def seen(self: Appraiser, known: Known) -> None:
        looks.append(self.book.requests)
        renew(self, known)

    monkeypatch.setattr(Appraiser, "renew", seen)
    play(timetable(*[Row(10.0 * number, 5, HALF) for number in range(40)]), TimedPolicy.ALIQUOT)
    assert len(looks) >= 2
    assert looks == sorted(set(looks))


def test_models_and_memory_and_parts_of_several_gpus_reach_the_centre() -> None:
    """A pod lies where its list says it may, with the memory it says, evenly over its GPUs."""
    machines = [
        msgspec.structs.replace(machine(0), model="T4", card=16_000),
        msgspec.structs.replace(machine(1), model="A10", card=24_000),
    ]
    on_a10 = msgspec.structs.replace(HALF, models=("A10",))
    two_halves = msgspec.structs.replace(PAIR, milli=500)
    # Two thirds of a T4 each, so no two of them lie on one of its cards, whatever compute is free.
    much = msgspec.structs.replace(HALF, models=("T4",), milli=100, card=11_000)
    asked = timetable(Row(0, 9, on_a10), Row(0, 9, two_halves), *[Row(1, 9, much) for _ in range(3)], machines=machines)
    _, log = _logged(asked, TimedPolicy.ALIQUOT)
    lies = {start.job.number: (at, start.row, start.gpus) for at, start in log.starts}
    assert lies[0][1] == 1
    assert (lies[1][0], lies[1][2]) == (0, (0, 1))
    starts = [lies[number] for number in (2, 3, 4)]
    assert [row for _, row, _ in starts] == [0, 0, 0]
    assert [at for at, _, _ in starts] == [1, 1, 10]


@pytest.mark.parametrize("policy", ALL)
def test_a_gpu_of_one_s_own_has_the_memory_that_is_asked_for(policy: TimedPolicy) -> None:
    """Two wait for the one large card while a small one is idle, whole GPUs and shares that take one for themselves."""
    machines = [msgspec.structs.replace(machine(row, gpus=1), card=card) for row, card in enumerate((16_000, 24_000))]
    whole = msgspec.structs.replace(WHOLE, card=20_000)
    share = msgspec.structs.replace(HALF, milli=900, card=20_000)
    for need in (whole, share):
        run, log = _logged(timetable(Row(0, 10, need), Row(0, 10, need), machines=machines), policy)
        assert [start.row for _, start in log.starts] == [1, 1]
        assert spans(run) == [(0, 10), (10, 20)]


def test_the_end_of_a_hold_is_seen_without_any_event() -> None:
    """A node is kept for a pair in vain; who could pass it is let in once the one in the way has run for an hour."""
    asked = timetable(Row(0, 10_000, WHOLE), Row(1, 10, PAIR, "b"), Row(1_000, 10, WHOLE, "c"))
    found = spans(play(asked, TimedPolicy.ALIQUOT, settings=QueueSettings(patience=300.0, hold=3_600.0)))
    # A run looks every 300 s: one look finds that nothing is kept any more, at the latest the next lets others pass.
    assert 3_600 <= found[2][0] < 4_200
    assert spans(play(asked, TimedPolicy.ALIQUOT, settings=QueueSettings(hold=0.0)))[2] == (1_000, 1_010)


def test_a_head_that_lost_patience_is_let_in_before_those_who_came_later() -> None:
    """Where small ones come without end, a pair would never find two GPUs free at once."""
    small = [Row(100.0 * number, 250, WHOLE) for number in range(60)]
    asked = timetable(*small, Row(50, 10, PAIR, "b"))
    patient = spans(play(asked, TimedPolicy.ALIQUOT, settings=QueueSettings(patience=300.0, hold=3600.0)))
    never = spans(play(asked, TimedPolicy.ALIQUOT, settings=QueueSettings(hold=0.0)))
    pair = next(job.number for job in asked.jobs if job.team == "b")
    assert patient[pair][0] < 1_000 < never[pair][0]


# --- of all runs -----------------------------------------------------------------------------------------------------


def _logged(asked: Timetable, policy: TimedPolicy, slowdown: float = 0.0) -> tuple[TimedRun, Log]:
    run = TimedRun(asked, policy=policy, specs=dict.fromkeys(asked.teams, OPEN), slowdown=slowdown)
    log = Log(run.meter)
    run._clockwork._watcher = log
    for _ in run.steps():
        pass
    return run, log


@pytest.mark.parametrize("policy", ALL)
@given(asked=timetables, slowdown=st.sampled_from([0.0, 0.2]))
@settings(max_examples=25, deadline=None)
def test_every_job_runs_once_and_nothing_is_given_twice(policy: TimedPolicy, asked: Timetable, slowdown: float) -> None:
    """Counted anew from where each lay and when, not from what decisions were made by."""
    run, log = _logged(asked, policy, slowdown)
    numbers = [job.number for job in asked.jobs]
    assert sorted(start.job.number for _, start in log.starts) == numbers
    assert sorted(job.number for _, job in log.ends) == numbers
    ends = {job.number: at for at, job in log.ends}
    needs = [in_whole_gpus(need) for need in asked.needs] if policy is TimedPolicy.WHOLE_GPU_FIFO else asked.needs
    for at, start in log.starts:
        runs = ends[start.job.number] - at
        assert at >= start.job.at
        assert runs == pytest.approx(start.job.runs) if not slowdown else runs >= start.job.runs - 1e-6
    for now, _ in log.starts:
        held: dict[tuple[str, int, int], int] = defaultdict(int)
        for at, start in log.starts:
            if at <= now < ends[start.job.number]:
                need = needs[start.job.need]
                held["cores", start.row, 0] += need.cores
                for gpu in start.gpus:
                    held["gpu", start.row, gpu] += need.milli
        for (what, row, _), much in held.items():
            assert much <= (1_000 if what == "gpu" else asked.machines[row].cores)
    if isinstance(run._clockwork._policy, Queued):
        # Else it would go on asking for turns that nobody waits for.
        assert not run._clockwork._policy._gated.any()
    for backlog in (run.meter.backlog, run.meter.full_backlog):
        assert backlog.allocated <= backlog.bound + 1e-6


@pytest.mark.parametrize("policy", ALL)
@given(asked=timetables)
@settings(max_examples=10, deadline=None)
def test_nobody_waits_who_has_room_when_nobody_is_kept_waiting_for(policy: TimedPolicy, asked: Timetable) -> None:
    """Without quotas and without a hold, whoever fits starts at once."""
    run = TimedRun(asked, policy=policy, specs=dict.fromkeys(asked.teams, OPEN), settings=QueueSettings(hold=0.0))
    works = run._clockwork
    for _ in run.steps():
        fleet = works._ground.fleet
        for number in works._waiting:
            need = works._ground.needs[asked.jobs[number].need]
            assert not fleet.able(need, slice(None), fleet.takes(need, slice(None))).any()


@pytest.mark.parametrize("policy", ALL)
@given(asked=timetables)
@settings(max_examples=5, deadline=None)
def test_the_same_timetable_makes_the_same_run(policy: TimedPolicy, asked: Timetable) -> None:
    """To the last second and GPU."""
    assert _logged(asked, policy)[1].starts == _logged(asked, policy)[1].starts


def test_a_run_that_is_broken_off_says_so() -> None:
    """What has come of it so far is counted."""
    asked = timetable(*[Row(10.0 * number, 5, WHOLE) for number in range(10)])
    run = TimedRun(asked, policy=TimedPolicy.FIFO, specs={})
    for arrived in run.steps():
        if arrived == 4:
            break
    report = run.report()
    assert (report.started, report.ended, report.partial) == (4, 3, True)


# --- defects are seen ------------------------------------------------------------------------------------------------


def test_a_policy_that_gives_what_is_not_there_is_stopped() -> None:
    """On a GPU, on cores, and on fewer GPUs than asked."""
    asked = timetable(Row(0, 1, WHOLE), Row(0, 1, HALF), Row(0, 1, PAIR), machines=[machine(cores=2_000)])
    whole, half, pair = asked.jobs
    ground = Ground(machines=asked.machines, needs=asked.needs)
    ground.put(Start(job=whole, row=0, gpus=(0,)))
    with pytest.raises(OverGrantError):
        ground.put(Start(job=half, row=0, gpus=(0,)))
    with pytest.raises(OverGrantError):
        Ground(machines=asked.machines, needs=asked.needs).put(Start(job=pair, row=0, gpus=(1,)))
    with pytest.raises(OverGrantError):
        Ground(machines=[machine(cores=500)], needs=asked.needs).put(Start(job=half, row=0, gpus=(0,)))


def test_a_job_is_not_started_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a policy says."""
    asked = timetable(Row(0, 10, HALF))
    run = TimedRun(asked, policy=TimedPolicy.FIFO, specs={})
    start = Start(job=asked.jobs[0], row=0, gpus=(0,))
    monkeypatch.setattr(run._clockwork._policy, "actions", lambda _: [start, start])
    with pytest.raises(StrayStartError):
        next(run.steps())


def test_a_report_of_nothing_is_a_report() -> None:
    """Before the first arrival."""
    asked = timetable(Row(0, 10, HALF))
    run = TimedRun(asked, policy=TimedPolicy.FIFO, specs={"a": QueueSpec()})
    report = told(run.meter, asked, policy="fifo", seed=1, seconds=0.0, partial=True)
    assert (report.wait.mean, report.backlog.allocated_pct, report.jain_wait, report.partial) == (0.0, None, None, True)


def test_a_long_curve_is_thinned_to_means_and_goes_on_to_the_end() -> None:
    """However many instants there were: what was given away in all can be read off it still."""
    asked = timetable(Row(0, 1, WHOLE))
    meter = Meter(asked, limits={})
    given = 0.0
    for instant in range(5_000):
        meter.allocated = (instant % 2) * 1_000 + instant // 5
        span = 1.0 + instant % 3
        given += span * meter.allocated
        meter.passed(meter.now + span)
    report = told(meter, asked, policy="fifo", seed=0, seconds=0.0, partial=False)
    at = [hours * 3_600.0 for hours, _, _ in report.curve]
    assert at[0] == 0.0
    assert at[-1] == pytest.approx(meter.now)
    assert len(at) <= 1_201
    held = [percent / 100.0 * asked.capacity for _, percent, _ in report.curve]
    read_off = sum(percent * (later - now) for percent, now, later in zip(held, at, at[1:], strict=False))
    assert read_off == pytest.approx(given, rel=0.001)
