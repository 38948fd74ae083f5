"""How long it takes to decide who has to go: a gang of N/10 whole nodes is owed them, all N are full of borrowers.

    .venv/bin/python benchmarks/queues/reclaim.py [--nodes 100 200 500 1000] [--times 5]

Each node has 8 GPUs, and on each GPU lies a pod of a queue that has borrowed it. Then a gang comes whose queue is
guaranteed a tenth of it: N/10 pods of 8 GPUs each, which start together or not at all. What is timed is the whole
decision, from the look at who waits to the clearing with all its victims, best of `--times`; and once more with the
same gang cut in pods of one GPU that are owed one by one. A minute in all.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.queues.room.clearings import Clearing
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

CARDS = 8


def full(nodes: int) -> ReclaimStage:
    """A cluster on which every card is borrowed."""
    specs = {"owner": queue(guarantee=100 * CARDS * (nodes // 10)), "borrower": queue()}
    stage = ReclaimStage(specs, nodes=(CARDS,) * nodes)
    for number in range(nodes * CARDS):
        stage.submit(f"b{number:05}", 100, queue="borrower")
    while stage.run(after=0.1):
        pass
    assert len(stage.queues.register.inside.bound) == nodes * CARDS
    return stage


def decided(stage: ReclaimStage) -> tuple[float, list[Clearing]]:
    """Seconds, and what was decided, look after look."""
    stage.beat()
    found: list[Clearing] = []
    began = time.perf_counter()
    while more := stage.reclaim.decide(now=stage.now, wall=stage.wall):
        found += more
    return time.perf_counter() - began, found


def measure(nodes: int, *, times: int, whole: bool) -> tuple[float, int]:
    """The least seconds, and how many go."""
    stage = full(nodes)
    count = nodes // 10
    if whole:
        for number in range(count):
            stage.submit(
                f"g{number:04}", 100 * CARDS, 8000, queue="owner", group="gang", notes={"group-size": str(count)}
            )
    else:
        for number in range(count * CARDS):
            stage.submit(f"g{number:04}", 100, queue="owner")
    best, victims = float("inf"), 0
    for _ in range(times):
        took, found = decided(stage)
        best, victims = min(best, took), sum(len(one.victims) for one in found)
        assert victims == count * CARDS, victims
        for clearing in found:
            stage.queues.register.making_room.call_off(clearing)
    return best, victims


def main() -> None:
    """Measure each size and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 200, 500, 1000])
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    for nodes in asked.nodes:
        for whole, title in ((True, "one gang of whole nodes"), (False, "pods of one GPU")):
            seconds, victims = measure(nodes, times=asked.times, whole=whole)
            print(f"{nodes} nodes, {title}: {seconds:.3f} s, {victims} victims", flush=True)


if __name__ == "__main__":
    main()
