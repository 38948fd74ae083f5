"""What fairness comes to over simulated time: bulk, jobs as large as the cluster, and urgency, each as one figure."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_replay import Job, Replay

ANYBODY = QueueSpec(namespaces=("*",))
EQUAL = {"a": ANYBODY, "b": ANYBODY}


def waits_beside_bulk(*, runs: float, at_once: int) -> list[float]:
    """Two users on eight GPUs: one submits so many equal jobs at once, the other one a minute; its waits, in runs."""
    every, busy = 60.0, at_once * runs / 8
    many = [Job(name=f"m{n:04}", queue="q", user="many", kind="", at=0.0, runs=runs) for n in range(at_once)]
    few = [
        Job(name=f"f{n:04}", queue="q", user="few", kind="", at=1.0 + every * n, runs=runs)
        for n in range(int(2 * busy / every))
    ]
    Replay({"q": ANYBODY}, nodes=1, cards=8).run([*many, *few])
    assert all(job.admitted is not None for job in few)
    return [(job.admitted - job.at) / runs for job in few if job.admitted is not None and job.at < busy]


def whole_clusters(*, cycles: int, weight: int = 1, half_life: float = 1_280.0) -> tuple[Counter[str], int]:
    """Two queues whose jobs take all 16 GPUs, the second of that weight: how many ended, and most of one in a row."""
    runs, quota = 10.0, Quota(weight=weight)
    specs = {"a": ANYBODY, "b": QueueSpec(namespaces=("*",), compute=quota, memory=quota)}
    jobs = [
        Job(name=f"{queue}{n:04}", queue=queue, user=queue, kind="", at=0.0, runs=runs, compute=1_600, gpus=16)
        for queue in EQUAL
        for n in range(cycles)
    ]
    settings = QueueSettings(half_life=half_life, penalty=runs)
    Replay(specs, nodes=1, cards=16, settings=settings).run(jobs, until=cycles * runs)
    done = sorted((job.ended, job.queue) for job in jobs if job.ended is not None)
    in_a_row = max(len(list(run)) for _, run in groupby(queue for _, queue in done))
    return Counter(queue for _, queue in done), in_a_row


def held_beside_large(small: QueueSpec, *, runs: tuple[float, float], half_life: float) -> dict[str, float]:
    """Jobs of four of eight GPUs beside single ones of that queue, both without end: which part of a day each holds."""
    until, large_runs, small_runs = 86_400.0, *runs
    jobs = [
        Job(name=f"l{n:03}", queue="large", user="a", kind="a", at=0.0, runs=large_runs, compute=400, gpus=4)
        for n in range(int(2.2 * until / large_runs))
    ]
    jobs += [
        Job(name=f"s{n:04}", queue="small", user="b", kind="b", at=0.0, runs=small_runs + n % 17)
        for n in range(int(8.4 * until / small_runs))
    ]
    specs, held = {"large": ANYBODY, "small": small}, Counter[str]()
    Replay(specs, nodes=2, cards=4, settings=QueueSettings(half_life=half_life)).run(jobs, until=until)
    for job in jobs:
        if job.admitted is not None:
            held[job.queue] += int(job.compute * min(job.runs, until - job.admitted))
    return {queue: held[queue] / (8 * until) for queue in specs}


def held_beside_urgent(*, priority: int, until: float) -> dict[str, float]:
    """Two tenants on eight GPUs, one of which gives all its pods this priority: what each holds on the average."""
    jobs = [
        Job(
            name=f"{queue}{n:04}",
            queue=queue,
            user=queue,
            kind="",
            at=0.0,
            runs=60.0 + n % 7,
            compute=25,
            priority=priority if queue == "a" else 0,
        )
        for queue in EQUAL
        for n in range(int(32 * until / 60.0))
    ]
    Replay(EQUAL, nodes=2, cards=4).run(jobs, until=until)
    held = Counter[str]()
    for job in jobs:
        if job.admitted is not None:
            held[job.queue] += int(job.compute * min(job.runs, until - job.admitted))
    return {queue: held[queue] / until for queue in EQUAL}
