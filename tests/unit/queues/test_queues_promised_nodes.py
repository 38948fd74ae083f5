"""Where room is kept for those who are let in and not bound: read off the pods, it is what the leader has."""

from __future__ import annotations

import random

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_kube.patches import Patch
from aliquot_scheduler.centre.pod_patches import let_through
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.explaining import explain
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.said.entry import plan_of
from aliquot_scheduler.queues.telling.standing import Standing
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, picture_with
from support.queue_stage import Stage

replace = msgspec.structs.replace
PLAN = plan_of([], [], names=NAMES)
# Large and small nodes: who guesses where room is kept guesses wrong.
NODES = (2, 4, 1, 3)


def lifted(pod: Pod, patch: Patch) -> Pod:
    """The pod as the API server has it once its gate is lifted by this very patch."""
    said = msgspec.json.decode(patch.body)
    notes = {**pod.metadata.annotations, **said["metadata"].get("annotations", {})}
    meta = replace(pod.metadata, annotations={key: text for key, text in notes.items() if text is not None})
    return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=[]))


def written(stage: Stage) -> list[Pod]:
    """All pods as the API server has them."""
    return [
        lifted(pod, let_through(stage.turns[uid], queue="", names=NAMES, wall=WALL))
        if uid in stage.turns and not pod.spec.node_name
        else pod
        for uid, pod in stage.pods.items()
    ]


def free_by_node(picture: Picture) -> dict[str, tuple[int, int]]:
    """How much compute and memory nobody holds or was promised."""
    grid = picture.grid
    return {
        name: (int(grid.compute[known.row].sum()), int(grid.memory[known.row].sum()))
        for name, known in picture.nodes.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_who_reads_the_pods_has_the_room_that_the_leader_has(seed: int) -> None:
    """On every node, whoever came and went; and each is told that its own room is there."""
    chance = random.Random(seed)
    stage = Stage(nodes=NODES)
    for number in range(40):
        stage.submit(f"p{number}", chance.choice((10, 30, 50, 100)), chance.choice((1000, 20_000, 40_000)))
        stage.bind(*(uid for uid in stage.round(after=0.5) if chance.random() < 0.5))
        running = [uid for uid, pod in stage.pods.items() if pod.spec.node_name]
        if running and chance.random() < 0.6:
            stage.end(chance.choice(running))
    pods, nodes = written(stage), [known.node for known in stage.picture.nodes.values()]
    seen = picture_with(*nodes)
    for pod in pods:
        seen.pod_seen(pod)
    Standing(picture=seen, plan=PLAN, pods=pods, names=NAMES, wall=WALL)
    assert free_by_node(seen) == free_by_node(stage.picture)
    leases = [make_lease(node.metadata.name) for node in nodes]
    let_in = [pod for pod in pods if NAMES.promised in pod.metadata.annotations and not pod.spec.node_name]
    assert let_in
    for pod in let_in:
        told = explain(pod, nodes=nodes, leases=leases, pods=pods, names=NAMES, wall=WALL, plan=PLAN)
        node, *_ = pod.metadata.annotations[NAMES.promised].split()
        assert told.summary.startswith(
            f"it was let in with room kept for it on node {node}, unless its scheduler has asked for another since; "
        )


def test_a_turn_without_room_takes_the_node_back() -> None:
    """It is shown to a cluster autoscaler after it had room once."""
    stage = Stage(nodes=(1,))
    pod = stage.submit("p")
    stage.round()
    once = lifted(pod, let_through(stage.turns["p"], queue="", names=NAMES, wall=WALL))
    (card,) = stage.picture.nodes["n0"].columns
    assert once.metadata.annotations[NAMES.promised] == f"n0 {card}"
    again = lifted(once, let_through(Turn(pod=once, promise=None, number=2, shown=1), queue="", names=NAMES, wall=WALL))
    assert NAMES.promised not in again.metadata.annotations
    assert again.metadata.annotations[NAMES.shown].endswith(" 1")
    placed = lifted(
        again, let_through(replace(stage.turns["p"], pod=again, number=3), queue="", names=NAMES, wall=WALL)
    )
    assert NAMES.shown not in placed.metadata.annotations


def test_its_own_room_stands_in_nobody_s_way_but_others() -> None:
    """Of two, one has the only GPU's room kept, the other does not get it."""
    node = make_node("n1", gpus("n1", 1))
    kept = asks("kept", 100, 8_000, annotations={NAMES.promised: "n1"})
    late = asks("late", 100, 8_000, spec={"schedulingGates": [{"name": NAMES.gate}]})
    leases = [make_lease("n1")]
    told = {
        pod.metadata.name: explain(
            pod, nodes=[node], leases=leases, pods=[kept, late], names=NAMES, wall=WALL, plan=PLAN
        )
        .nodes[0]
        .fits
        for pod in (kept, late)
    }
    assert told == {"pod-kept": True, "pod-late": False}
