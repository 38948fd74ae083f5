"""Nodes labelled `disktype=ssd` are preferred; pods that say so go nowhere else."""

from __future__ import annotations

from aliquot_scheduler.rules.rule import NodeFacts, Opinion, PodFacts


def fast_disk(pod: PodFacts, node: NodeFacts) -> Opinion | None:
    """What speaks against the node, if anything does."""
    if node.labels.get("disktype") == "ssd":
        return None
    if pod.annotations.get("example.org/disk") == "ssd":
        return Opinion(refused=True, why="its disks are slow, and the pod wants fast ones")
    # Two tenths of a GPU may be lost for a fast disk, and not more.
    return Opinion(cost=0.2, why="its disks are slow")
