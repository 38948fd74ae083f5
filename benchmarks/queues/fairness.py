"""What fairness comes to: shares beside an oracle, bulk, priority, and whole-cluster jobs in turns.

.venv/bin/python benchmarks/queues/fairness.py [--trees 10000]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.queues.charged.shares import exact_shares, shares
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, plant
from support.queue_replay import Job, Replay, mean
from support.share_oracle import Oracle, random_tree

EVERYBODY = ("*",)


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", type=int, default=10_000)
    asked = parser.parse_args()
    against_the_oracle(asked.trees)
    small_requests()
    bulk()
    in_turns()
    urgent()
    unequal()


def against_the_oracle(trees: int) -> None:
    """Random trees, each beside exact rationals worked out the slow way."""
    equal, furthest = 0, Fraction(0)
    for seed in range(trees):
        specs, demand, capacity = random_tree(Random(seed))  # noqa: S311 - repeats itself
        tree = plant(specs)
        wanted = Oracle(specs, demand).shares(capacity)
        exact = exact_shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)
        whole = shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)
        equal += all(exact[name] == share for name, share in wanted.items())
        furthest = max([furthest, *(abs(whole[name] - share) for name, share in wanted.items())])
    print(f"{equal} of {trees} trees equal to the oracle exactly; in whole percent at most {float(furthest):.3f} off")


def small_requests() -> None:
    """Where whole GPUs are handed out somebody gets nothing: two queues that ask 0.9 of one, eight that ask four."""
    for count, cards, each in ((2, 1, 90), (8, 4, 100)):
        names = [f"q{number}" for number in range(count)]
        tree = plant({name: QueueSpec(namespaces=EVERYBODY) for name in names})
        due = exact_shares(tree, dimension=COMPUTE, capacity=100 * cards, demand=dict.fromkeys(names, each))
        jobs = [
            Job(name=f"{name}-{number:03}", queue=name, user=name, kind="job", at=0.0, runs=60.0, compute=each)
            for name in names
            for number in range(50)
        ]
        replay = Replay({name: QueueSpec(namespaces=EVERYBODY) for name in names}, nodes=1, cards=cards)
        replay.run(jobs, until=60.0 * 50)
        done = Counter(job.queue for job in jobs if job.ended is not None)
        print(
            f"{count} queues asking {each} % on {cards} GPUs: due {sorted({str(due[name]) for name in names})} percent "
            f"each; jobs ended in 50 minutes: least {min(done[n] for n in names)}, most {max(done[n] for n in names)}"
        )


def bulk() -> None:
    """Two users of one queue on eight GPUs, equal jobs: one submits 1,000 at once, the other one a minute."""
    for runs in (60.0, 180.0):
        many = [Job(name=f"m{n:04}", queue="q", user="many", kind="many", at=0.0, runs=runs) for n in range(1_000)]
        few = [
            Job(name=f"f{n:04}", queue="q", user="few", kind="few", at=1.0 + 60.0 * n, runs=runs) for n in range(300)
        ]
        replay = Replay({"q": QueueSpec(namespaces=EVERYBODY)}, nodes=1, cards=8)
        replay.run([*many, *few])
        waits = [job.admitted - job.at for job in few if job.admitted is not None and job.at < 1_000 * runs / 8]
        print(
            f"1,000 jobs of {runs:.0f} s at once beside one a minute: its mean wait {mean(waits):.0f} s = "
            f"{mean(waits) / runs:.2f} job lengths, at most {max(waits) / runs:.2f} (n={len(waits)})"
        )


def in_turns() -> None:
    """Two equal queues whose jobs need all 16 GPUs."""
    runs, cycles = 10.0, 1_024
    jobs = [
        Job(name=f"{queue}{n:04}", queue=queue, user=queue, kind=queue, at=0.0, runs=runs, compute=1_600, gpus=16)
        for queue in "ab"
        for n in range(cycles)
    ]
    settings = QueueSettings(half_life=128 * runs, penalty=runs)
    replay = Replay(
        {"a": QueueSpec(namespaces=EVERYBODY), "b": QueueSpec(namespaces=EVERYBODY)},
        nodes=1,
        cards=16,
        settings=settings,
    )
    replay.run(jobs, until=cycles * runs)
    done = Counter(job.queue for job in jobs if job.ended is not None)
    order = [job.queue for job in sorted(jobs, key=lambda job: job.admitted or 1e18)][:cycles]
    longest = max(len(run) for queue in "ab" for run in "".join(order).replace("ab"[queue == "a"], " ").split())
    print(f"whole-cluster jobs of two queues over {cycles} cycles: {dict(done)}, at most {longest} of one in a row")


def urgent() -> None:
    """One of two tenants marks everything most urgent; what the other holds on the average."""
    held = {}
    for priority in (0, 10**9):
        jobs = [
            Job(
                name=f"{queue}{n:04}",
                queue=queue,
                user=queue,
                kind=queue,
                at=0.0,
                runs=60.0 + n % 7,
                compute=25,
                priority=priority if queue == "a" else 0,
            )
            for queue in "ab"
            for n in range(1_500)
        ]
        replay = Replay({"a": QueueSpec(namespaces=EVERYBODY), "b": QueueSpec(namespaces=EVERYBODY)}, nodes=2, cards=4)
        replay.run(jobs, until=3_600.0)
        ran = [job for job in jobs if job.queue == "b" and job.admitted is not None]
        seconds = sum(min(job.runs, 3_600.0 - job.admitted) for job in ran if job.admitted is not None)
        held[priority] = 25 * seconds / 3_600.0
    print(f"the other tenant holds {held[0]:.1f} % of 800 without, {held[10**9]:.1f} % with everything most urgent")


def unequal() -> None:
    """Whole nodes for half an hour beside small jobs of minutes, both without end: who holds how much."""
    nine = Quota(weight=9)
    for what, small in {
        "equal queues": QueueSpec(namespaces=EVERYBODY),
        "small weight 9": QueueSpec(namespaces=EVERYBODY, compute=nine, memory=nine),
        "small priority 1": QueueSpec(namespaces=EVERYBODY, priority=1),
    }.items():
        until, held = 24 * 3_600.0, Counter[str]()
        jobs = [
            Job(name=f"l{n:03}", queue="large", user="a", kind="a", at=0.0, runs=1_800.0, compute=400, gpus=4)
            for n in range(110)
        ] + [Job(name=f"s{n:04}", queue="small", user="b", kind="b", at=0.0, runs=300.0 + n % 17) for n in range(2_500)]
        settings = QueueSettings(half_life=7_200.0)
        Replay({"large": QueueSpec(namespaces=EVERYBODY), "small": small}, nodes=2, cards=4, settings=settings).run(
            jobs, until=until
        )
        for job in jobs:
            if job.admitted is not None:
                held[job.queue] += int(job.compute * min(job.runs, until - job.admitted))
        parts = {queue: f"{held[queue] / (8 * until):.1f} %" for queue in ("large", "small")}
        print(f"4-GPU jobs of 30 minutes beside 1-GPU jobs of 5, eight GPUs, a day, {what}: {parts}")


if __name__ == "__main__":
    main()
