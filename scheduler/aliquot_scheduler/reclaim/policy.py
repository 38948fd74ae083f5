"""What a queue says of sending pods away, with what the queues above it say."""

from __future__ import annotations

import msgspec

from aliquot_scheduler.queues.said.tree import ROOT, Tree

ANYBODY = "AnyUser"
NEVER = "Never"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """In full: for whom its pods go inside it, whether it takes back what it lent, how long its pods are let run."""

    within_queue: str = NEVER
    reclaims: bool = True
    min_run: float = 0.0


def policy_of(queue: str, *, tree: Tree) -> Policy:
    """Its own word, or the nearest above."""
    said = [tree.nodes[name].spec.preemption for name in tree.path(queue) if name != ROOT]
    return Policy(
        within_queue=next((one.within_queue for one in said if one.within_queue), NEVER),
        reclaims=next((one.reclaim for one in said if one.reclaim), "") != NEVER,
        min_run=float(next((one.min_run_seconds for one in said if one.min_run_seconds is not None), 0)),
    )
