"""Compute and memory of GPUs at once: how much of either lies idle for want of the other.

    python benchmarks/placement/two_axes.py [--seeds 42,43,44] [--runs aliquot,fgd,...]

The openb trace says nothing of GPU memory, so it is derived. Cards have 16 GiB (T4, P100, V100M16), 24 (A10, G2) or 32
(V100M32, G3; the sizes of G2 and G3 are not published). A pod that shares a GPU wants its share of a 16 GiB card, half
of that or twice as much (each one pod in three, drawn once for each line of the list), at most 16 GiB; so it asks for a
fixed number of MiB, which is more or less of a card according to where it lies. Whole GPUs close their cards.

Of all cards, in percent: given away is what pods asked for; stranded compute is what is free on cards beyond their free
memory, stranded memory the other way round. At x percent of compute asked for. A run takes 2 to 30 s, all of them some
ten minutes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.simulating.fleet import Fleet
from aliquot_scheduler.simulating.fragments import typical_pods
from aliquot_scheduler.simulating.policies import BestFit, Fgd, Policy
from aliquot_scheduler.simulating.replay import FAILED, Replay, Ties
from aliquot_scheduler.simulating.valued import Valued, mix_of
from aliquot_scheduler.simulating.workload import MILLI, Longs, Machine, Need, Workload
from support.traces import openb

VARIANT = "default"
ALL = 1_000_000
CARDS = {"T4": 16, "P100": 16, "V100M16": 16, "A10": 24, "G2": 24, "V100M32": 32, "G3": 32}
_GIB = 1024
LEAST_CARD = 16 * _GIB
FACTORS = (0.5, 1.0, 2.0)
RUNS = ("aliquot, mix given", "aliquot, mix learnt", "best fit", "fgd")
AT = (100, 130)


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """In percent of all cards."""

    compute_given: float
    memory_given: float
    compute_stranded: float
    memory_stranded: float


def main() -> int:
    """A line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="42,43,44,45,46,47,48,49,50,51")
    parser.add_argument("--runs", default=";".join(RUNS), help="separated by semicolons")
    chosen = parser.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    print("| policy | x | compute given away | memory given away | stranded compute | stranded memory |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in chosen.runs.split(";"):
        runs = [_run(name, seed) for seed in seeds]
        for x in AT:
            found = [run[x] for run in runs]
            told = [statistics.fmean(getattr(one, field) for one in found) for field in Idle.__struct_fields__]
            print(f"| {name} | {x} | {' | '.join(f'{value:.2f}' for value in told)} |", flush=True)
    return 0


def _run(name: str, seed: int) -> dict[int, Idle]:
    workload, line = with_memory(seed)
    fleet = Fleet(workload.machines)
    ties = Ties(random=np.random.default_rng(seed)) if name.startswith("aliquot") else Ties(line=line)
    replay = Replay(workload, fleet=fleet, policy=_policy(name, workload, fleet), ties=ties)
    totals = np.array([need.total for need in workload.needs])[workload.pods][workload.arrivals]
    ends = {int(np.searchsorted(totals.cumsum(), x / 100 * workload.capacity)): x for x in AT}
    found = {}
    for done in replay.steps():
        if (x := ends.get(done)) is not None or done == len(totals):
            where = replay.outcome().where
            found[x or AT[-1]] = _idle(fleet, given=float(totals[:done][where != FAILED].sum()) / workload.capacity)
    return found


def _policy(name: str, workload: Workload, fleet: Fleet) -> Policy:
    match name:
        case "aliquot, mix given":
            return Valued(fleet, mix=mix_of(workload, fleet))
        case "aliquot, mix learnt":
            return Valued(fleet, mix=None)
        case "best fit":
            return BestFit(fleet)
    return Fgd(fleet, typical=typical_pods(workload))


def _idle(fleet: Fleet, *, given: float) -> Idle:
    compute = fleet.milli[fleet.there] / MILLI
    memory = fleet.card_left[fleet.there] / fleet.card[fleet.there]
    percent = 100 / compute.size
    return Idle(
        compute_given=100 * given,
        memory_given=100 - percent * float(memory.sum()),
        compute_stranded=percent * float(np.maximum(0.0, compute - memory).sum()),
        memory_stranded=percent * float(np.maximum(0.0, memory - compute).sum()),
    )


def with_memory(seed: int) -> tuple[Workload, Longs]:
    """The run of this seed, with memory of cards and pods; and its line of equals."""
    plain, line = openb(VARIANT, seed=seed, arrivals=ALL)
    machines = tuple(msgspec.structs.replace(one, card=_card(one)) for one in plain.machines)
    # The same draw for every seed: seeds are orders of one list.
    factors = np.random.default_rng(0).choice(FACTORS, size=len(plain.pods))
    wanted = [_with_card(plain.needs[need], factor) for need, factor in zip(plain.pods, factors, strict=True)]
    needs = {need: number for number, need in enumerate(dict.fromkeys(wanted))}
    pods = np.array([needs[need] for need in wanted], dtype=np.int64)
    return Workload(machines=machines, needs=tuple(needs), pods=pods, arrivals=plain.arrivals), line


def _card(machine: Machine) -> int:
    return CARDS[machine.model] * _GIB if machine.gpus else 0


def _with_card(need: Need, factor: float) -> Need:
    if not need.shared:
        return need
    return msgspec.structs.replace(need, card=min(LEAST_CARD, round(factor * need.milli / MILLI * LEAST_CARD)))


if __name__ == "__main__":
    sys.exit(main())
