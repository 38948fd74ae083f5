"""How long an edit of one queue takes: 5,000 pods wait in 200 queues before 1,000 nodes of 8 GPUs; CPU time.

    .venv/bin/python benchmarks/queues/edits.py [--pods 5000] [--queues 200] [--nodes 1000] [--times 5]

Meanwhile nobody is answered: it is what a call of kube-scheduler waits at most for it. Who runs holds what it did, and
who waits stays as it was read, as long as queues count the same things; the last edit makes one that names a model.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from msgspec.structs import replace

from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from support.bench_figures import Asked
from support.bench_options import sized
from support.queue_load import lone_pods, two_levels
from support.queue_replay import Replay

# In ms. Where a model is named first, or no more, everybody is put down anew.
_ASKED = 250.0
_NAMING_ASKED = {"few shapes": 1_500.0, "a shape for each pod": 5_000.0}
Specs = Mapping[str, QueueSpec]


def main() -> None:
    """Each edit with both loads."""
    parser = sized(__doc__, queues=200)
    parser.add_argument("--times", type=int, default=5)
    asked, figures = parser.parse_args(), Asked()
    for title, own in (("few shapes", False), ("a shape for each pod", True)):
        specs = two_levels(queues=asked.queues, nodes=asked.nodes)
        replay = full(specs, asked, own_shapes=own)
        print(f"{title}: {len(replay.running)} run, {len(replay.queues)} wait")
        for what, changed in edits_of(specs).items():
            took = [seconds for _ in range(asked.times) for seconds in there_and_back(replay, changed, specs)]
            print(f"  {what}: {1e3 * min(took):.0f} to {1e3 * max(took):.0f} ms")
            figures.at_most(what, 1e3 * max(took), _ASKED)
        took = list(there_and_back(replay, naming_a_model(specs), specs))
        print(f"  a model is named, and no more: {1e3 * took[0]:.0f} and {1e3 * took[1]:.0f} ms")
        figures.at_most("a model is named, and no more", 1e3 * max(took), _NAMING_ASKED[title])
    figures.end()


def full(specs: Specs, asked: argparse.Namespace, *, own_shapes: bool) -> Replay:
    """So many wait."""
    replay = Replay(specs, nodes=asked.nodes, cards=8)
    for made, job in enumerate(lone_pods(queues=asked.queues, own_shapes=own_shapes), start=1):
        replay.submit(job)
        if made % 500 == 0:
            replay.decide()
        if len(replay.queues) >= asked.pods:
            break
    replay.decide()
    gc.collect()
    gc.freeze()
    return replay


def edits_of(specs: Specs) -> dict[str, Specs]:
    """Of one queue, which has a parent and a guarantee."""
    name, *_ = [name for name, spec in specs.items() if spec.parent]
    spec = specs[name]
    parents = sorted({one.parent for one in specs.values() if one.parent} - {spec.parent})
    return {
        "weight": {**specs, name: replace(spec, compute=replace(spec.compute, weight=3))},
        "guarantee": {**specs, name: replace(spec, compute=replace(spec.compute, guarantee=100))},
        "limit": {**specs, name: replace(spec, compute=replace(spec.compute, limit=10_000))},
        "held": {**specs, name: replace(spec, stop="hold")},
        "another parent": {**specs, name: replace(spec, parent=parents[0])},
        "deleted, and made again": {one: other for one, other in specs.items() if one != name},
    }


def naming_a_model(specs: Specs) -> Specs:
    """Of which no queue spoke before."""
    return {**specs, "scarce": QueueSpec(models={"*H100*": ModelQuota(compute=Quota(limit=100))})}


def there_and_back(replay: Replay, changed: Specs, before: Specs) -> tuple[float, float]:
    """Seconds until nobody is let in any more by the queues of now, and by those of before."""
    return taken(replay, changed), taken(replay, before)


def taken(replay: Replay, specs: Specs) -> float:
    """Seconds until that is so."""
    replay.now += 1.0
    began = time.process_time()
    replay.queues.queues_seen(specs)
    replay.decide()
    return time.process_time() - began


if __name__ == "__main__":
    main()
