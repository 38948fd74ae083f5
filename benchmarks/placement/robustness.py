"""Where a policy that knows too much would fail: a mix that turns half-way, and a cluster of ten nodes.

    python benchmarks/placement/robustness.py [--seeds 42,43,...] [--runs "bestfit;fgd"]

Both are made of openb: the arrivals of `default` up to 50 % of the GPUs, then those of `gpuspec33` and of `gpushare60`;
and every 121st node with arrivals drawn from the list. GPUs given away at x = 100, in percent.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.simulating.drawing import draw_order
from aliquot_scheduler.simulating.runs import MixSource, PolicyName, begin
from aliquot_scheduler.simulating.workload import Workload
from support.traces import openb

RUNS = (
    ("aliquot, mix given", PolicyName.ALIQUOT, MixSource.GIVEN),
    ("aliquot, learnt", PolicyName.ALIQUOT, MixSource.LEARNT),
    ("bestfit", PolicyName.BESTFIT, MixSource.GIVEN),
    ("fgd", PolicyName.FGD, MixSource.GIVEN),
)
EVERY = 121
ALL = 1_000_000
TURNS = ("gpuspec33", "gpushare60")
SEEDS = tuple(range(42, 52))
DRAWS = range(10)


def main() -> int:
    """What is given, where a mix is, is that of both lists together."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--runs", default=";".join(name for name, _, _ in RUNS), help="separated by semicolons")
    chosen = parser.parse_args()
    seeds, names = [int(seed) for seed in chosen.seeds.split(",")], chosen.runs.split(";")
    print(f"| policy | turns to {TURNS[0]} (sd) | turns to {TURNS[1]} (sd) | ten nodes (sd) |\n|---|--:|--:|--:|")
    for name, policy, mix in (one for one in RUNS if one[0] in names):
        turned = [_told([_run(_turned(to, seed), policy, mix, seed) for seed in seeds]) for to in TURNS]
        small = [_run(_small(seed), policy, mix, seed) for seed in DRAWS]
        print(f"| {name} | {' | '.join([*turned, _told(small)])} |", flush=True)
    return 0


def _run(workload: Workload, policy: PolicyName, mix: MixSource, seed: int) -> float:
    replay = begin(workload, policy=policy, mix=mix, seed=seed, line=None)
    for _ in replay.steps():
        pass
    outcome = replay.outcome()
    return outcome.curve(outcome.allocated)[100]


def _turned(to: str, seed: int) -> Workload:
    (first, _), (second, _) = (openb(variant, seed=seed, arrivals=ALL) for variant in ("default", to))
    needs = list(dict.fromkeys([*first.needs, *second.needs]))
    numbers = {need: number for number, need in enumerate(needs)}
    pods = [np.array([numbers[need] for need in one.needs])[one.pods] for one in (first, second)]
    totals = np.array([need.total for need in first.needs])[first.pods][first.arrivals]
    half = int(np.searchsorted(totals.cumsum(), first.capacity / 2))
    arrivals = np.concatenate([first.arrivals[:half], len(pods[0]) + second.arrivals])
    return Workload(
        machines=first.machines, needs=tuple(needs), pods=np.concatenate(pods), arrivals=arrivals[: len(first.arrivals)]
    )


def _small(seed: int) -> Workload:
    whole, _ = openb("default", seed=42, arrivals=ALL)
    machines = whole.machines[::EVERY][:10]
    few = Workload(machines=machines, needs=whole.needs, pods=whole.pods, arrivals=whole.arrivals[:0])
    random = np.random.default_rng(seed)
    order = draw_order(random, needs=few.needs, pods=few.pods, capacity=few.capacity)
    return Workload(machines=machines, needs=whole.needs, pods=whole.pods, arrivals=order)


def _told(values: list[float]) -> str:
    return f"{statistics.fmean(values):.2f} ({statistics.pstdev(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
