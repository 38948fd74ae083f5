"""How long one event of a group takes: 5,000 pods of groups wait in 200 queues before 1,000 nodes of 8 GPUs.

    .venv/bin/python benchmarks/queues/groups.py [--pods 5000] [--queues 200] [--nodes 1000] [--events 300]

Groups of 2, 8 and 64 pods, one of two elastic, and of 800: two that start as a whole and two that start with four. An
event is a pod of a group that waits being deleted, that pod being made again, or a pod of no group that ends; each size
has as many of them as any other. CPU time of the answer: a whole round of turns, and the binding of whoever was let in.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_core.objects import Pod
from support.bench_figures import Asked
from support.bench_options import ask_events, sized
from support.queue_load import two_levels
from support.queue_replay import Job, Replay

_ASKED = 20.0
_SIZES = (2, 8, 64)
_LARGE, _LARGE_LEAST = 800, 4
# Of all GPUs so many are taken by pods of no group.
_FULL = 0.97


def main() -> None:
    """Run it and print, by the size of the group."""
    parser = sized(__doc__, queues=200)
    ask_events(parser, default=300)
    asked = parser.parse_args()
    took, figures = measure(asked), Asked()
    for size, seconds in took.items():
        cuts = statistics.quantiles(seconds, n=100)
        print(
            f"groups of {size}: p50 {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms, "
            f"at most {1e3 * max(seconds):.1f} ms (n={len(seconds)})"
        )
    every = [one for seconds in took.values() for one in seconds]
    figures.at_most("p99 of all in ms", 1e3 * statistics.quantiles(every, n=100)[98], _ASKED)
    figures.end()


def measure(asked: argparse.Namespace) -> dict[int, list[float]]:
    """Seconds for each event, by the size of the group that it was of."""
    chance = Random(1)
    replay = Replay(two_levels(queues=asked.queues, nodes=asked.nodes), nodes=asked.nodes, cards=8)
    fill(replay, asked)
    groups = dict[int, list[Job]]()
    for job in groups_of(asked):
        replay.submit(job)
        groups.setdefault(job.pods, []).append(job)
        if len(replay.queues) >= asked.pods:
            replay.decide()
        if len(replay.queues) >= asked.pods:
            break
    print(f"{len(replay.running)} run, {len(replay.queues)} wait")
    # As the centre does once all is read.
    gc.collect()
    gc.freeze()
    took: dict[int, list[float]] = {size: [] for size in groups}
    out: dict[int, tuple[Job, Pod]] = {}
    for number in range(asked.events):
        replay.now += 0.1
        size = sorted(groups)[number // 3 % len(groups)]
        waiting = [job for job in groups[size] if job.admitted is None]
        uid = chance.choice(replay.waiting_of(chance.choice(waiting).name)) if waiting else ""
        ending = chance.choice([name for name in replay.running if name.startswith("j")])
        began = time.process_time()
        if number % 3 == 0 and uid:
            out[size] = replay.take_out(uid)
        elif number % 3 == 1 and size in out:
            replay.make_again(*out.pop(size))
        else:
            replay.end(ending)
        replay.decide()
        took[size].append(time.process_time() - began)
    return took


def fill(replay: Replay, asked: argparse.Namespace) -> None:
    """Pods of no group run nearly everywhere."""
    chance = Random(2)
    for made in range(int(_FULL * 8 * asked.nodes)):
        queue = f"q{chance.randrange(asked.queues):03}"
        replay.submit(
            Job(name=f"j{made:06}", queue=queue, user=queue, kind="", at=float(made), runs=1e9, memory=10_000)
        )
        if made % 500 == 0:
            replay.decide()


def groups_of(asked: argparse.Namespace) -> Iterator[Job]:
    """One group after the other, without end; the large ones first."""
    chance = Random(3)
    for made in count():
        size = _LARGE if made < len(_SIZES) + 1 else _SIZES[made % len(_SIZES)]
        least = 0 if made % 2 else _LARGE_LEAST if size == _LARGE else size // 2
        queue = f"q{chance.randrange(asked.queues):03}"
        yield Job(
            name=f"g{made:06}",
            queue=queue,
            user=queue,
            kind="",
            at=1e6 + made,
            runs=1e9,
            compute=chance.choice((50, 100)),
            memory=10_000,
            pods=size,
            minimum=least,
        )


if __name__ == "__main__":
    main()
