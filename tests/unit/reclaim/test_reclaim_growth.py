"""How the work of taking back grows with the cluster: a gang of N/10 whole nodes, on N that are full of borrowers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import log

import pytest

from aliquot_scheduler.queues.room.clearings import Clearing
from support.centre import bound
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage
from support.steps import steps_of

SIZES = (100, 200, 500, 1_000)
CARDS = 4
ALONE: Mapping[str, str] = {}
# What is looked at once, whatever the size, counts for less the larger it is.
SLACK = 1.02


def full(nodes: int, *, pairs: bool) -> ReclaimStage:
    """Each card is borrowed by a pod of its own; by groups of two, or each alone."""
    specs = {"owner": queue(guarantee=100 * CARDS * (nodes // 10)), "borrower": queue()}
    stage = ReclaimStage(specs, nodes=(CARDS,) * nodes)
    for number in range(nodes * CARDS):
        card = number % CARDS
        notes = {"group-size": "2"} if pairs else ALONE
        group = f"pair{number // 2}" if pairs else ""
        pod = stage.submit(f"b{number:05}", 100, queue="borrower", group=group, notes=notes)
        node = f"n{number // CARDS}"
        stage.see(bound(pod, node=node, held={f"GPU-{node}-{card}": (100, 1_000)}))
    return stage


def steps_to_take_back(nodes: int, *, pairs: bool) -> int:
    """Of the whole decision, from the look at who waits to all of its victims."""
    stage = full(nodes, pairs=pairs)
    count = nodes // 10
    for number in range(count):
        stage.submit(f"g{number:04}", 100 * CARDS, queue="owner", group="gang", notes={"group-size": str(count)})
    assert stage.run(after=1.0) == []
    found: list[Clearing] = []
    steps = steps_of(lambda: found.extend(stage.decide(after=1.0)))
    (clearing,) = found
    assert len(clearing.victims) == CARDS * count
    return steps


@pytest.mark.timeout(180)
@pytest.mark.parametrize("pairs", [False, True], ids=["single-pods", "groups-of-two"])
def test_it_grows_with_the_nodes_and_their_logarithm_at_most(*, pairs: bool) -> None:
    """From each size to the next, so that what grows faster is seen where it is the larger part."""
    steps = {nodes: steps_to_take_back(nodes, pairs=pairs) for nodes in SIZES}
    for few, many in pairwise(SIZES):
        assert steps[many] <= SLACK * steps[few] * (many * log(many)) / (few * log(few)), steps
