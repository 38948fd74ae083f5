"""Nodes by what kube-scheduler looks at: labels, taints, CPU, memory, places; and what pods want of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.objects import Node, Taint
from support.centre import gpus, make_node
from support.queue_stage import Stage

replace = msgspec.structs.replace
LARGE = {"cpu": "8", "memory": "32Gi", "pods": "10"}


def node(
    name: str,
    *,
    cards: int = 2,
    labels: Mapping[str, str] | None = None,
    taints: Mapping[str, str] | None = None,
    extended: Mapping[str, str] | None = None,
    **room: str,
) -> Node:
    """A node with so many cards; taints are key=value by their effects."""
    made = make_node(name, gpus(name, cards), labels=labels or {})
    hard = [Taint(key=key, value=value, effect="NoSchedule") for key, value in (taints or {}).items()]
    return replace(
        made,
        spec=replace(made.spec, taints=tuple(hard)),
        status=replace(made.status, allocatable={**LARGE, **room, **(extended or {})}),
    )


def staged(*nodes: Node) -> Stage:
    """A stage with these nodes and no others."""
    stage = Stage({}, nodes=())
    for one in nodes:
        stage.picture.node_seen(one)
    stage.beat()
    return stage


def told(stage: Stage, uid: str) -> tuple[str, str]:
    """The word and the sentence that a waiting pod is told."""
    waiter = next(one for one in stage.queues.waiting() if one.uid == uid)
    notice = stage.queues.notice(waiter)
    return notice.reason, notice.message


def selecting(**labels: str) -> dict[str, Any]:
    """A spec with a nodeSelector."""
    return {"nodeSelector": labels}


def requiring(*tests: tuple[str, str, list[str]], fields: bool = False) -> dict[str, Any]:
    """A spec with a required affinity to nodes."""
    written = [{"key": key, "operator": operator, "values": values} for key, operator, values in tests]
    term = {"matchFields" if fields else "matchExpressions": written}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }
