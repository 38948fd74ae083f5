"""Nobody hogs by bulk, by size or by urgency: what benchmarks/queues asks of simulated time, in small."""

from __future__ import annotations

import pytest

from support.hogging import held_beside_urgent, waits_beside_bulk, whole_clusters
from support.kueue_workloads import NOMINAL, generate
from support.queue_replay import Replay, mean


@pytest.mark.parametrize("runs", [60.0, 180.0])
def test_bulk_buys_no_place(runs: float) -> None:
    """Beside 120 jobs at once another user's wait is two job lengths at most, on the average."""
    waits = waits_beside_bulk(runs=runs, at_once=120)
    assert len(waits) >= 15
    assert mean(waits) <= 2.0


def test_jobs_as_large_as_the_cluster_take_turns() -> None:
    """Two equal queues come to 50/50 within 2 of a hundred."""
    done, in_a_row = whole_clusters(cycles=128)
    assert done.total() == 128
    assert abs(done["a"] - done["b"]) <= 0.04 * 128
    assert in_a_row <= 2


def test_urgency_takes_nothing_from_others() -> None:
    """Whatever priority a tenant gives all its pods, the other holds half of eight GPUs, as without."""
    calm = held_beside_urgent(priority=0, until=600.0)
    urgent = held_beside_urgent(priority=10**9, until=600.0)
    assert urgent["b"] == pytest.approx(calm["b"], rel=0.01) == pytest.approx(400.0, rel=0.02)
    assert urgent["a"] == pytest.approx(400.0, rel=0.02)


def test_many_sizes_fill_their_quota() -> None:
    """A thirtieth of Kueue's baseline ends within 1.3 of the time that it takes at the least."""
    specs, jobs = generate(cohorts=1, members=2, counts={"small": 70, "medium": 20, "large": 10})
    replay = Replay(specs, nodes=2, cards=20)
    makespan = replay.run(jobs, step=0.01)
    assert all(job.ended is not None for job in jobs)
    assert makespan <= 1.3 * sum(job.work for job in jobs) / (NOMINAL * 2)
