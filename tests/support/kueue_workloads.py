"""Kueue's generators of workloads, as its own performance tests have them: a CPU of theirs is a GPU of ours."""

from __future__ import annotations

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_replay import Job

# Percent that each queue is guaranteed: 20 CPUs.
NOMINAL = 2_000
# Workloads of a queue, each one's CPUs, seconds, priority, and how long after the one before it comes.
CLASSES = {"small": (1, 0.2, 50, 0.1), "medium": (5, 0.5, 100, 0.5), "large": (20, 1.0, 200, 1.2)}
COUNTS = {
    "baseline": {"small": 350, "medium": 100, "large": 50},
    "large": {"small": 35, "medium": 11, "large": 4},
}
KUEUE = {"small": 215.0, "medium": 76.8, "large": 16.5}


def generate(*, cohorts: int, members: int, counts: dict[str, int]) -> tuple[dict[str, QueueSpec], list[Job]]:
    """Their queues and workloads."""
    specs: dict[str, QueueSpec] = {}
    jobs: list[Job] = []
    for cohort in range(cohorts):
        top = f"cohort-{cohort}"
        specs[top] = QueueSpec(compute=Quota(guarantee=NOMINAL * members, limit=NOMINAL * members))
        for member in range(members):
            name = f"{top}-{member}"
            quota = Quota(guarantee=NOMINAL, borrowing_limit=100 * 100)
            specs[name] = QueueSpec(parent=top, compute=quota, namespaces=("*",))
            for kind, count in counts.items():
                cpus, runs, priority, every = CLASSES[kind]
                jobs += [
                    Job(
                        name=f"{name}-{kind}-{number:03}",
                        queue=name,
                        user=name,
                        kind=kind,
                        at=every * number,
                        runs=runs,
                        pods=cpus,
                        priority=priority,
                    )
                    for number in range(count)
                ]
    return specs, jobs
