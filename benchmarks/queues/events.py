"""How long one event takes: 5,000 pods wait in 200 queues before 1,000 nodes of 8 GPUs; CPU time of the answer to each.

    .venv/bin/python benchmarks/queues/events.py [--pods 5000] [--queues 200] [--nodes 1000] [--events 1000]
        [--reserving 0]

An event is a pod that ends, comes, or is deleted while it waits; the answer is a whole round of turns, and the binding
of whoever was let in. Two loads: few shapes, as people submit them, and every pod of a shape of its own. With
`--reserving` so many of the queues keep their guarantee even while they use nothing.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_replay import Job, Replay


def main() -> None:
    """Run both loads and print."""
    parser = argparse.ArgumentParser()
    for name, value in (("pods", 5_000), ("queues", 200), ("nodes", 1_000), ("events", 1_000), ("reserving", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    for title, own in (("few shapes", False), ("a shape for each pod", True)):
        took = measure(
            pods=asked.pods,
            queues=asked.queues,
            nodes=asked.nodes,
            events=asked.events,
            reserving=asked.reserving,
            own_shapes=own,
        )
        cuts = statistics.quantiles(took, n=100)
        print(
            f"{title}: p50 {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms, at most {1e3 * max(took):.1f} ms "
            f"(n={len(took)})"
        )


def measure(*, pods: int, queues: int, nodes: int, events: int, reserving: int, own_shapes: bool) -> list[float]:
    """Seconds for each event."""
    chance = Random(1)  # noqa: S311 - repeats itself, guards nothing
    tops = {f"org-{number}": QueueSpec() for number in range(10)}
    specs = tops | {
        f"q{number:03}": QueueSpec(
            parent=f"org-{number % 10}",
            compute=Quota(guarantee=100 * 8 * nodes // (2 * queues), lending_limit=0 if number < reserving else None),
            namespaces=("*",),
        )
        for number in range(queues)
    }
    replay = Replay(specs, nodes=nodes, cards=8)
    made = 0

    def job() -> Job:
        nonlocal made
        made += 1
        queue = f"q{chance.randrange(queues):03}"
        compute = chance.choice((25, 50, 75, 100))
        memory = chance.randrange(1_000, 60_000) if own_shapes else 10_000
        return Job(
            name=f"j{made:06}",
            queue=queue,
            user=queue,
            kind="",
            at=float(made),
            runs=1e9,
            compute=compute,
            memory=memory,
        )

    while len(replay.queues) < pods:
        replay.submit(job())
        if made % 500 == 0:
            replay.decide()
    replay.decide()
    waits = [one for one in replay.jobs.values() if one.admitted is None]
    print(f"{len(replay.running)} run, {len(waits)} wait")
    # As the centre does once all is read.
    gc.collect()
    gc.freeze()
    took = []
    for number in range(events):
        replay.now += 0.1
        ending, coming = chance.choice(list(replay.running)), job()
        leaving = chance.choice([one.name for one in waits if one.admitted is None][:50])
        began = time.process_time()
        if number % 3 == 0:
            replay.end(ending)
        elif number % 3 == 1:
            replay.submit(coming)
        else:
            replay.give_up(leaving)
        replay.decide()
        took.append(time.process_time() - began)
    return took


if __name__ == "__main__":
    main()
