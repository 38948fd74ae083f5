"""What one decision about a place costs the centre: all nodes valued, the best found, and laid out on its GPUs.

    python benchmarks/placement/decision.py

Nodes of 8 GPUs and 64 cores, half filled with pods of the sizes of openb; each decision is for a pod of another size,
and takes effect before the next. CPU time of this process, since the machine may be shared.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_core.hosts import host_request
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.picture.picture import Picture
from support.centre import NAMES, asks, bound, gpus, make_node, picture_with

CARDS = 8
SIZES = (5, 11, 22, 29, 33, 46, 47, 55, 65, 81, 100, 100, 100, 100, 200, 400)
PER_PERCENT = 700
LIMITS = {1_213: 1.5, 5_000: 5.0}
DECISIONS = 300


def main() -> int:
    """Two sizes of clusters."""
    missed = False
    print("| nodes | GPUs | median | p99 | asked |\n|--:|--:|--:|--:|--:|")
    for nodes, limit in LIMITS.items():
        took = _decide(nodes)
        median, most = np.median(took), np.quantile(took, 0.99)
        print(f"| {nodes} | {nodes * CARDS} | {median:.2f} ms | {most:.2f} ms | ≤ {limit} ms |")
        missed |= bool(median > limit)
    return int(missed)


def _decide(nodes: int) -> list[float]:
    draw = random.Random(1)
    names = [f"n{number}" for number in range(nodes)]
    made = [make_node(name, gpus(name, CARDS)) for name in names]
    picture = picture_with(*made)
    appraiser = Appraiser(picture=picture, names=NAMES)
    for number, name in enumerate(names):
        held = {f"GPU-{name}-{card}": (size := draw.choice((22, 46, 55, 81)), size * PER_PERCENT) for card in range(4)}
        _seen(bound(asks(f"old{number}", 20, 1), node=name, held=held), picture=picture, appraiser=appraiser)
    finder = Finder(picture=picture, names=NAMES, look=appraiser.look)
    by_row = {known.row: name for name, known in picture.nodes.items()}
    took = []
    for number in range(DECISIONS + 20):
        pod = asks(f"new{number}", draw.choice(SIZES), None)
        _seen(pod, picture=picture, appraiser=appraiser)
        if work := appraiser.due():
            appraiser.renew(work())
        demand = demand_of(parse_request(pod, names=NAMES))
        start = time.process_time()
        found = finder.survey(pod, demand)
        best = by_row[int(np.argmin(np.where(found.fits, found.cost, np.inf)))]
        plan = finder.plan(pod, demand, node=best)
        took.append(1e3 * (time.process_time() - start))
        assert plan is not None
        picture.hold(pod.metadata.uid, {(best, uuid): claim for uuid, claim in plan.claims.items()})
        picture.hosts.hold(pod.metadata.uid, node=best, amounts=host_request(pod))
    return took[20:]


def _seen(pod: Pod, *, picture: Picture, appraiser: Appraiser) -> None:
    picture.pod_seen(pod)
    appraiser.pod_seen(pod)


if __name__ == "__main__":
    sys.exit(main())
