"""Whether those of a group who are bound lie as it wants to lie, by their grants."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.objects import Pod
from aliquot_scheduler.fit.links import islands
from support.centre import NAMES
from support.queue_stage import Stage


def check_together(stage: Stage) -> None:
    """Of each run of each group, whoever let them in."""
    for gang, uids in stage.queues.books.let_in.items():
        there = [pod for uid in sorted(uids) if (pod := stage.pods.get(uid)) and pod.spec.node_name]
        if there:
            assert _lie_well(stage, there), (gang, [pod.spec.node_name for pod in there])


def _lie_well(stage: Stage, pods: Sequence[Pod]) -> bool:
    """Whether these do, all of one group."""
    held = {gpu for pod in pods for gpu in stage.picture.holdings.of(pod.metadata.uid)}
    nodes = [pod.spec.node_name for pod in pods]
    match pods[0].metadata.annotations.get(NAMES.group_topology, ""):
        case "node":
            return len(set(nodes)) == 1
        case "spread":
            return len(set(nodes)) == len(nodes)
        case "nvlink":
            known = stage.picture.nodes.get(nodes[0])
            found = islands(known.inventory.gpus) if known and len(set(nodes)) == 1 else []
            return any({gpu for _, gpu in held} <= set(island) for island in found)
        case _:
            return True
