"""Of what a pod does not ask for less than nothing may be left, wherever it is counted; nobody else has less for that.

More is held than there is where a setting was lowered, or where pods were bound past Aliquot.
"""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.claims import Claim
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.queues.room.clearings import Place
from aliquot_scheduler.queues.room.refuges import Refuges
from support.centre import MEMORY, Asked, asks, counting
from support.counting_stage import counted, staged
from support.queue_stage import Stage, queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace
OWNED = {"owner": queue(guarantee=200), "other": queue()}


def without_places(stage: Stage) -> None:
    """On n0 two lie for best effort, and its kubelet has no places any more."""
    counted(stage)
    for uid in ("a", "b"):
        stage.submit(uid, None, 600, queue="owner")
    assert sorted(stage.run()) == ["a", "b"]
    known = stage.picture.nodes["n0"]
    stage.picture.node_seen(counting(known.node, places=0))
    stage.beat()
    assert stage.picture.hosts.own_left("n0") == (200, 2 * MEMORY - 1_200, -2)


def test_a_group_is_laid_where_there_is_too_little_of_what_it_does_not_ask() -> None:
    """One by one, the oldest first, they would not all find room: so all of them are laid together."""
    stage = Stage({"owner": queue()}, nodes=(2,))
    without_places(stage)
    for number, compute in enumerate((10, 10, 90, 90)):
        stage.submit(f"g{number}", compute, queue="owner", group="g", notes={"group-size": "4"})
    assert stage.round() == ["g0", "g1", "g2", "g3"]


def test_somebody_goes_there_and_the_room_is_taken() -> None:
    """Both the search and what waits until the room is there ask for no more."""
    stage = ReclaimStage(OWNED, nodes=(2,))
    without_places(stage)
    for uid in ("low", "lower"):
        stage.submit(uid, 90, 20_000, queue="other")
        stage.run(after=1.0)
    stage.submit("q", 90, 20_000, queue="owner")
    assert stage.round() == []
    assert len(stage.reclaimed()) == 1
    assert stage.round() == ["q"]


def test_nobody_waits_there_for_who_leaves() -> None:
    """A turn is all that it needs: what is short is nothing that it asks for."""
    stage = ReclaimStage(OWNED, nodes=(2,))
    without_places(stage)
    stage.submit("goes", 90, 20_000, queue="other", notes={"gpu-uuid": "GPU-n0-1"})
    assert stage.run() == ["goes"]
    stage.leave("goes")
    stage.submit("q", 90, 20_000, queue="owner", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.decide() == []
    assert stage.round() == ["q"]


def test_where_too_much_is_held_other_nodes_have_what_they_have() -> None:
    """All that is free is what each node has left, and none has less than nothing."""
    stage = staged(1, 1)
    stray = asks("stray", 160, None, namespace="kube-system")
    stage.see(replace(stray, spec=replace(stray.spec, node_name="n0")))
    assert stage.picture.hosts.own_left("n0") == (-60, MEMORY, 32)
    compute, _ = stage.queues.stock().free
    assert compute == 100


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ((None, 600), (200, 2 * MEMORY - 600, 63)),
        ((30, 700), (170, 2 * MEMORY - 700, 64)),
    ],
)
def test_what_is_kept_for_who_is_moved_counts_as_it_will(asked: Asked, left: tuple[int, int, int]) -> None:
    """A place for best effort too: else another gets it meanwhile."""
    stage = staged(2)
    stage.submit("m", *asked)
    (waiter,) = stage.queues.waiting()
    refuges, claim = Refuges(picture=stage.picture), Claim(compute=Percent(asked[0] or 0), memory=MiB(asked[1] or 0))
    refuges.open([Place(waiter=waiter, node="n0", claims={"GPU-n0-0": claim})], until=100.0)
    assert stage.picture.hosts.own_left("n0") == left
    refuges.close("m")
    assert stage.picture.hosts.own_left("n0") == (200, 2 * MEMORY, 64)
