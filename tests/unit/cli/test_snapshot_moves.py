"""A replay moves whom the leader moves: for one that waits, and off a GPU that fails; to the same cards, for the same.

Each snapshot is taken just before the leader decides.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_cli.snapshot import read_snapshot
from aliquot_core.instants import micro_time, second_time
from aliquot_core.names import LEADER_LEASE, MIX, MIX_KEY, MOVED_KEY
from aliquot_core.objects import Lease, Node, Queue
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.in_force import InForce
from aliquot_scheduler.queues.room.recalling import words_of_drained
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.simulating.deciding import Decisions, Replayed, is_moved, makes_room
from aliquot_scheduler.simulating.snapshot import Snapshot, packed, unpacked
from support.centre import NAMES, WALL, failing, gpus, make_lease, make_node
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage
from support.reigning import Reigning
from support.snapshots import CALL

replace = msgspec.structs.replace

OPEN = ("blue", "red")
AN_HOUR = 3_600.0
# A pod has run for ten hours when it is bound: so long a whole card waits until moving a half pays.
LONG = 60_000.0
PER_HOUR = 10


def _stage(nodes: tuple[int, ...]) -> ReclaimStage:
    """An hour after its leader began."""
    stage = ReclaimStage({name: queue() for name in OPEN}, nodes=nodes, moves_per_hour=PER_HOUR)
    stage.consolidate()
    stage.consolidate(after=AN_HOUR)
    return stage


def _come(stage: ReclaimStage, uid: str, compute: int, **more: Any) -> None:
    """A pod joins just now."""
    pod = stage.submit(uid, compute, queue="red", **more)
    made = replace(pod.metadata, creation_timestamp=second_time(stage.wall))
    stage.see(replace(pod, metadata=made))


def _taken(stage: ReclaimStage, node: Node, *, led: float = AN_HOUR, moved: str = "") -> Snapshot:
    """As it would be read just now, when one has led for so long."""
    spec = {"holderIdentity": "centre-1", "acquireTime": micro_time(stage.wall - led)}
    leader = msgspec.convert({"metadata": {"name": LEADER_LEASE, "namespace": NAMES.namespace}, "spec": spec}, Lease)
    queues = [{"metadata": {"name": name}, "spec": {"namespaces": ["*"]}} for name in OPEN]
    whole = Snapshot(
        wall=stage.wall,
        names=NAMES,
        settings=InForce(queues=QueueSettings(moves_per_hour=PER_HOUR)),
        nodes=[node],
        leases=[make_lease("n0", renewed=second_time(stage.wall)), leader],
        pods=list(stage.pods.values()),
        queues=[msgspec.convert(one, Queue) for one in queues],
        moved=moved,
    )
    return unpacked(packed(whole), where="memory")


def _decided(stage: ReclaimStage) -> Decisions:
    """By the leader itself: what stands once it has looked."""
    stage.consolidate()
    register = stage.queues.register
    return Decisions(
        let_in=[],
        room=[makes_room(one) for one in register.clearings],
        moved=[said for one in register.refuges if (said := is_moved(one, register=register))],
        waiting=len(stage.queues),
    )


def _scattered() -> ReclaimStage:
    """Two halves on a card each, and one that wants a card whole has come."""
    stage = _stage((2,))
    for number in range(2):
        stage.submit_made(f"half{number}", 50, by=f"job{number}", queue="blue", notes={"placement": "spread"})
        stage.run(after=1.0)
    _come(stage, "whole", 100)
    assert stage.run() == []
    return stage


@pytest.mark.parametrize(("waited", "moved"), [(600.0, 0), (LONG, 1)])
def test_a_replay_moves_for_one_that_waits_once_that_pays(waited: float, moved: int) -> None:
    """And not before."""
    stage = _scattered()
    stage.now += waited
    stage.beat()
    told = Replayed(_taken(stage, make_node("n0", gpus("n0", 2)), led=AN_HOUR + waited)).decide()
    assert told == _decided(stage)
    assert (len(told.room), len(told.moved)) == (moved, moved)


def test_a_replay_moves_no_more_than_a_leader_that_began_just_then() -> None:
    """Of what may be moved within an hour it has nothing yet, and nobody has waited for it."""
    stage = _scattered()
    stage.now += LONG
    told = Replayed(_taken(stage, make_node("n0", gpus("n0", 2)), led=60.0)).decide()
    assert (told.room, told.moved) == ([], [])


def _worn() -> tuple[ReclaimStage, Node, str]:
    """Somebody has run for an hour on a card that fails from now on, and the other one, which is told, is free."""
    stage = _stage((2,))
    stage.submit_made("there", 60, by="job", queue="blue")
    stage.run(after=1.0)
    ((_, bad),) = stage.picture.holdings.of("there")
    both = gpus("n0", 2)
    node = make_node("n0", [failing(card) if card.uuid == bad else card for card in both])
    stage.picture.node_seen(node)
    stage.now += AN_HOUR
    stage.beat()
    return stage, node, next(card.uuid for card in both if card.uuid != bad)


def test_a_replay_moves_off_a_gpu_that_fails() -> None:
    """Whatever may be moved within an hour."""
    stage, node, sound = _worn()
    told = Replayed(_taken(stage, node, led=0.0)).decide()
    assert told == _decided(stage)
    (moved,) = told.moved
    assert (moved.pod, moved.gpus, moved.why) == ("team/pod-there", [f"n0/{sound}"], "its GPU is degraded")


def test_a_replay_keeps_room_for_who_went_off_a_gpu_that_fails() -> None:
    """As the leader has put it down: nobody else comes there before the next pod of its maker."""
    stage, node, sound = _worn()
    stage.consolidate()
    stage.evict()
    words = words_of_drained(stage.queues.register.refuges)
    stage.gone("there")
    _come(stage, "rival", 60, notes={"gpu-uuid": sound})
    known, unknown = (Replayed(_taken(stage, node, moved=moved)).decide() for moved in (words, ""))
    assert [one.pod for one in unknown.let_in] == ["team/pod-rival"]
    assert known.let_in == []
    assert stage.run() == []


async def test_what_the_leader_put_down_for_the_next_one_is_in_a_file() -> None:
    """What it has learnt of requests, and for whom it keeps room: both from one place."""
    on = Reigning(CentreSettings())
    told = {MIX_KEY: "learnt", MOVED_KEY: "kept"}
    on.create(
        f"/api/v1/namespaces/{NAMES.namespace}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MIX}, "data": told},
    )
    taken = await read_snapshot(on._client, call=CALL, wall=WALL)
    assert (taken.mix, taken.moved) == ("learnt", "kept")
