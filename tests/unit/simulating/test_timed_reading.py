"""Pod lists with times: what is read, what is refused with its line, and what is made of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.simulating.reading import TraceError
from aliquot_scheduler.simulating.timed.altering import bootstrapped, compressed, given_to_teams
from aliquot_scheduler.simulating.timed.bound import Bound
from aliquot_scheduler.simulating.timed.job import Timetable
from aliquot_scheduler.simulating.timed.reading import read_timetable
from aliquot_scheduler.simulating.workload import Machine, Need
from support.timetables import HALF, WHOLE, Row, machine, timetable
from support.traces import OPENB

HEADING = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,scheduled_time,deletion_time"
MACHINES = [machine()]


def read(*lines: str, heading: str = HEADING, after: int = 0, gpus_only: bool = False) -> Timetable:
    """A list of these pods."""
    text = [f"{line}\n" for line in (heading, *lines)]
    return read_timetable(text, name="pods.csv", machines=MACHINES, after=after, gpus_only=gpus_only)


def test_pods_come_when_they_came_and_run_as_they_ran() -> None:
    """From the first one on, in the order of their creation, whatever order the list is in."""
    found = read("1000,64,1,500,,70,75,100", "1000,64,1,500,,20,50,90", "500,64,0,0,,20,20,30")
    assert [(job.at, job.runs, found.needs[job.need].gpus) for job in found.jobs] == [
        (0, 40, 1),
        (0, 10, 0),
        (50, 25, 1),
    ]
    assert len(found.needs) == 2
    assert len(read("1000,64,1,500,,70,75,100", "1000,64,1,500,,20,50,90", after=70).jobs) == 1
    assert len(read("1000,64,1,500,,70,75,100", "500,64,0,0,,20,20,30", gpus_only=True).jobs) == 1


def test_pods_without_an_end_or_without_a_machine_are_left_out_and_counted() -> None:
    """A pod that still runs says nothing of how long it runs."""
    found = read("1000,64,1,500,,1,,", "1000,64,1,500,,1,5,", "1000,64,8,1000,,1,2,3", "1000,64,1,500,,1,2,3")
    assert (len(found.jobs), found.left_out) == (1, 3)


def test_owners_are_read_where_the_list_has_them() -> None:
    """A pod's queue is its team, that of who names none is the default one; who names no user is known by the queue."""
    lines = "1000,64,1,500,,1,2,3,vision,ann", "1000,64,1,500,,1,2,3,speech,", "1000,64,1,500,,1,2,3,,bob"
    found = read(*lines, heading=f"{HEADING},queue,user")
    assert [(job.team, job.user) for job in found.jobs] == [
        ("vision", "ann"),
        ("speech", "speech"),
        ("default", "bob"),
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1000,64,1,500,,9,5,20", "pods.csv, line 3: the pod was created at 9, scheduled at 5"),
        ("1000,64,1,500,,1,5,4", "deleted at 4"),
        ("1000,64,1,500,,,5,9", "pods.csv, line 3: creation_time is empty"),
        ("1000,64,1,500,,1,soon,9", "line 3: scheduled_time 'soon' is not a whole number"),
        ("1000,64,1,500,,1,5,99999999999", "deletion_time 99999999999 is not between"),
        ("1000,64,1,500,,1,5", "line 3: it has 7 cells"),
        ("1000,64,1,0,,1,5,9", "line 3: num_gpu is 1 and gpu_milli 0"),
    ],
)
def test_a_line_that_can_not_be_meant_is_refused_with_its_number(line: str, told: str) -> None:
    """And with its column where it is one cell."""
    with pytest.raises(TraceError) as error:
        read("1000,64,1,500,,1,2,3", line)
    assert told in str(error.value)


def test_a_pod_that_is_there_twice_is_refused() -> None:
    """By its name and when it was created; one that was made again later, or that has no name, is another."""
    heading, again = f"{HEADING},name", "1000,64,1,500,,7,8,9,trainer"
    once = ("1000,64,1,500,,1,2,3,trainer", again, "1000,64,1,500,,1,2,3,", "1000,64,1,500,,1,2,3,")
    assert len(read(*once, heading=heading).jobs) == 4
    with pytest.raises(TraceError, match=r"line 6: pod 'trainer' is there twice, created at 7"):
        read(*once, again, heading=heading)


def test_a_list_without_times_is_refused() -> None:
    """It is told which columns are missing, and of a list without any end what to fill."""
    with pytest.raises(TraceError, match="scheduled_time, deletion_time is missing"):
        read("1000,64,1,500,,1", heading=",".join(HEADING.split(",")[:6]))
    with pytest.raises(TraceError, match="no pod with an end"):
        read("1000,64,1,500,,1,,")


def test_the_public_trace_has_as_many_pods_as_its_facts_say() -> None:
    """7,217 that can be used, 6,167 of them with GPUs, for 16,341 GPU-hours."""
    nodes = [Machine(name="n", cores=96_000, memory=393_216, gpus=8, model="G2")]
    with (OPENB / "openb_pod_list_default.csv").open(newline="") as lines:
        found = read_timetable(lines, name="openb", machines=nodes, after=9_964_972)
    with_gpus = [job for job in found.jobs if found.needs[job.need].gpus]
    assert (len(found.jobs), len(with_gpus)) == (7_217, 6_167)
    assert round(sum(found.needs[job.need].total * job.runs for job in with_gpus) / 3.6e6) == 16_341


def test_compressed_pods_come_sooner_and_run_as_long() -> None:
    """So a backlog is made."""
    found = compressed(timetable(Row(0, 10, HALF), Row(100, 10, HALF)), factor=0.25)
    assert [(job.at, job.runs) for job in found.jobs] == [(0, 10), (25, 10)]


def test_a_bootstrap_draws_whole_pods_and_is_the_same_from_the_same_seed() -> None:
    """Arrival, need, run time and owner stay together; some come twice, some not at all."""
    asked = timetable(*[Row(number, number + 1, HALF, f"team{number}") for number in range(50)])
    found = bootstrapped(asked, seed=1)
    assert [job.number for job in found.jobs] == list(range(50))
    assert all(job.runs == job.at + 1 and job.team == f"team{int(job.at)}" for job in found.jobs)
    assert [job.at for job in found.jobs] == sorted(job.at for job in found.jobs)
    assert 1 < max(Counter(job.at for job in found.jobs).values()) < 10
    assert found == bootstrapped(asked, seed=1) != bootstrapped(asked, seed=2)


def test_equal_pods_in_bulk_are_one_users_and_others_are_spread() -> None:
    """A quarter of the teams submit in bulk, and nothing else."""
    bulk = [Row(5.0 * number, 10, HALF) for number in range(40)]
    others = [Row(1_000.0 * number, 10, WHOLE) for number in range(200)]
    found = given_to_teams(timetable(*bulk, *others), teams=8, users=3, seed=1)
    owners = {job.user for job in found.jobs if found.needs[job.need] == HALF}
    assert len(owners) == 1
    assert next(iter(owners)).startswith(("team-00-bulk", "team-01-bulk"))
    spread = Counter(job.team for job in found.jobs if found.needs[job.need] == WHOLE)
    assert sorted(spread) == [f"team-0{number}" for number in range(2, 8)]
    assert min(spread.values()) > 15
    assert len({job.user for job in found.jobs if job.team == "team-05"}) == 3
    assert {job.team for job in given_to_teams(found, teams=1, users=1, seed=1).jobs} == {"team-00"}


def test_the_bound_by_hand() -> None:
    """Cores for half of those who want GPUs: those go first who need few, and pieces count as such."""
    light, heavy = Need(cores=1_000, memory=0, gpus=1, milli=1_000), Need(cores=8_000, memory=0, gpus=1, milli=1_000)
    asked = timetable(Row(0, 1, light), Row(0, 1, heavy), machines=[machine(gpus=8, cores=16_000)])
    bound = Bound(machines=asked.machines, needs=asked.needs, capacity=asked.capacity)
    assert bound.most(np.array([0, 0])) == 0
    assert bound.most(np.array([3, 0])) == 3_000
    assert bound.most(np.array([4, 9])) == 4_000 + 1_500
    assert bound.most(np.array([20, 0])) == 8_000


@given(counts=st.lists(st.integers(0, 6), min_size=3, max_size=3), cores=st.integers(1_000, 30_000))
def test_the_bound_is_never_below_what_a_line_of_whole_jobs_takes(counts: list[int], cores: int) -> None:
    """Whatever order they are let in, whoever still fits."""
    needs = [Need(cores=c, memory=100, gpus=1, milli=m) for c, m in ((1_000, 300), (4_000, 1_000), (9_000, 700))]
    asked = timetable(*[Row(0, 1, need) for need in needs], machines=[machine(gpus=4, cores=cores)])
    left, milli = cores, 0
    for need, count in zip(needs, counts, strict=True):
        for _ in range(count):
            if need.cores <= left and milli + need.total <= asked.capacity:
                left, milli = left - need.cores, milli + need.total
    bound = Bound(machines=asked.machines, needs=asked.needs, capacity=asked.capacity)
    assert bound.most(np.array(counts)) >= milli - 1e-6
