"""What fairness comes to: shares beside an oracle, bulk, priority, and whole-cluster jobs in turns.

Each figure is printed beside what is asked of it; whoever falls short ends with 1.

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
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, plant
from support.bench_figures import Asked
from support.hogging import held_beside_large, held_beside_urgent, waits_beside_bulk, whole_clusters
from support.queue_replay import Job, Replay, mean
from support.share_definition import Judge, sound_trees
from support.share_oracle import Oracle, random_tree

EVERYBODY = ("*",)
WEIGHTS = (2, 3, 9)
DAY = 86_400.0


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", type=int, default=10_000)
    asked = parser.parse_args()
    figures = Asked()
    against_the_oracle(figures, asked.trees)
    by_definition(figures, asked.trees)
    small_requests(figures)
    bulk(figures)
    in_turns(figures)
    urgent(figures)
    by_weight(figures)
    unequal(figures)
    figures.end()


def against_the_oracle(asked: Asked, trees: int) -> None:
    """Random trees, each beside exact rationals worked out the slow way."""
    equal, furthest = 0, Fraction(0)
    for seed in range(trees):
        specs, demand, capacity = random_tree(Random(seed))
        tree = plant(specs)
        wanted = Oracle(specs, demand).shares(capacity)
        exact = exact_shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)
        whole = shares(tree, dimension=COMPUTE, capacity=capacity, demand=demand)
        equal += all(exact[name] == share for name, share in wanted.items())
        furthest = max([furthest, *(abs(whole[name] - share) for name, share in wanted.items())])
    print(f"{equal} of {trees} trees equal to the oracle exactly; in whole percent at most {float(furthest):.3f} off")
    asked.at_least("trees equal to the oracle", equal, trees)
    asked.at_most("percent off after rounding", float(furthest), 1.0)


def by_definition(asked: Asked, trees: int) -> None:
    """Sound random trees: shares of compute and memory that can be given, and nobody is due any more."""
    fair = 0
    for seed in range(trees):
        specs, *dimensions = sound_trees(Random(seed))
        tree = plant(specs)
        for dimension, claims in zip((COMPUTE, MEMORY), dimensions, strict=True):
            found = exact_shares(tree, dimension=dimension, capacity=claims.capacity, demand=claims.asked)
            fair += not any(Judge(claims).faults({leaf: found[leaf] for leaf in claims.asked}))
    print(f"{fair} of {2 * trees} shares of sound trees are fair by definition, in compute and in memory")
    asked.at_least("shares that are fair by definition", fair, 2 * trees)


def small_requests(asked: Asked) -> None:
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
        asked.at_least(
            "jobs of whoever had least, beside who had most", min(done[n] for n in names) / max(done.values()), 0.9
        )


def bulk(asked: Asked) -> None:
    """Two users of one queue on eight GPUs, equal jobs: one submits 1,000 at once, the other one a minute."""
    for runs in (60.0, 180.0):
        waits = waits_beside_bulk(runs=runs, at_once=1_000)
        print(
            f"1,000 jobs of {runs:.0f} s at once beside one a minute: its mean wait {mean(waits):.2f} job lengths, "
            f"at most {max(waits):.2f} (n={len(waits)})"
        )
        asked.at_most("mean wait in job lengths", mean(waits), 2.0)


def in_turns(asked: Asked) -> None:
    """Two equal queues whose jobs need all 16 GPUs."""
    cycles = 1_024
    done, in_a_row = whole_clusters(cycles=cycles)
    print(f"whole-cluster jobs of two queues over {cycles} cycles: {dict(done)}, at most {in_a_row} of one in a row")
    asked.at_most("percent from half", abs(100 * done["a"] / cycles - 50), 2.0)


def urgent(asked: Asked) -> None:
    """One of two tenants marks everything most urgent; what the other holds on the average."""
    calm, hurried = (held_beside_urgent(priority=priority, until=3_600.0)["b"] for priority in (0, 10**9))
    print(f"the other tenant holds {calm:.1f} % of 800 without, {hurried:.1f} % with everything most urgent")
    asked.at_most("percent of its share that it loses", 100 * (1 - hurried / calm), 1.0)


def by_weight(asked: Asked) -> None:
    """Jobs of all there is, of two queues of unequal weight, over 300 cycles, by a long half-life and a short one."""
    cycles = 300
    for weight in WEIGHTS:
        due = 100 * weight / (weight + 1)
        for what, half_life in {"a day": DAY, "128 cycles": 1_280.0}.items():
            done, _ = whole_clusters(cycles=cycles, weight=weight, half_life=half_life)
            had = 100 * done["b"] / cycles
            print(f"whole-cluster jobs, weight {weight} to 1, half-life {what}: due {due:.1f} %, had {had:.1f} %")
            asked.at_most("percent from what is due", abs(had - due), 1.0)


def unequal(asked: Asked) -> None:
    """Half of a cluster at a time beside single GPUs, both without end: who holds how much of a day."""
    for what, small in {
        "equal queues": QueueSpec(namespaces=EVERYBODY),
        "small weight 9": weighing(9),
        "small priority 1": QueueSpec(namespaces=EVERYBODY, priority=1),
    }.items():
        held = held_beside_large(small, runs=(1_800.0, 300.0), half_life=7_200.0)
        parts = {queue: f"{part:.1f} %" for queue, part in held.items()}
        print(f"4-GPU jobs of 30 minutes beside 1-GPU jobs of 5, eight GPUs, a day, {what}: {parts}")
    for weight in WEIGHTS:
        due = 100 * weight / (weight + 1)
        had = [
            held_beside_large(weighing(weight), runs=(3_600.0, 600.0), half_life=half_life)["small"]
            for half_life in (7_200.0, DAY)
        ]
        print(
            f"4-GPU jobs of an hour beside 1-GPU jobs of 10 minutes of weight {weight}: the small ones are due "
            f"{due:.1f} %, and had {had[0]:.1f} with a half-life of two hours, {had[1]:.1f} of a day"
        )
        asked.at_least("percent of those who ask small, at equal weight's at least", min(had), 50.0 - 1.0)


def weighing(weight: int) -> QueueSpec:
    """A queue of that weight."""
    return QueueSpec(namespaces=EVERYBODY, compute=Quota(weight=weight), memory=Quota(weight=weight))


if __name__ == "__main__":
    main()
