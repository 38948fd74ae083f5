"""Two equal queues whose jobs need the whole cluster have it by halves."""

from __future__ import annotations

from collections import Counter

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.queue_replay import Job, Replay

CYCLES, RUNS = 1_024, 10.0


def test_jobs_of_the_whole_cluster_come_by_halves() -> None:
    """Over 1,024 cycles 50/50 ± 2 percent, though one queue has submitted all of its jobs before the other."""
    specs = {name: QueueSpec(namespaces=("*",)) for name in "ab"}
    settings = QueueSettings(half_life=128 * RUNS, penalty=RUNS)
    replay = Replay(specs, nodes=1, cards=4, settings=settings)
    jobs = [
        Job(name=f"{name}{n:04}", queue=name, user=name, kind=name, at=at, runs=RUNS, compute=400, gpus=4)
        for name, at in (("a", 0.0), ("b", 1.0))
        for n in range(CYCLES)
    ]
    replay.run(jobs, until=CYCLES * RUNS)
    done = Counter(job.queue for job in jobs if job.ended is not None)
    assert sum(done.values()) == pytest.approx(CYCLES, abs=1)
    assert done["a"] == pytest.approx(CYCLES / 2, abs=0.02 * CYCLES)
