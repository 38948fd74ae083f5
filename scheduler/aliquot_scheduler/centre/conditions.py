"""The condition by which a pod says whether its queue has let it in: how the leader reads it, and how it writes it."""

from __future__ import annotations

from typing import Any

from aliquot_core.names import Names
from aliquot_core.objects import Pod, PodCondition
from aliquot_kube.patches import Patch, strategic_patch
from aliquot_scheduler.queues.notices import Notice

LET_IN = Notice(reason="LetIn", message="")


def said_of(pod: Pod, *, names: Names) -> PodCondition | None:
    """What the pod says now, if it says anything."""
    return next((one for one in pod.status.conditions if one.type == names.admitted), None)


def saying(pod: Pod, notice: Notice, *, admitted: bool, names: Names, at: str, node: str = "") -> Patch:
    """Let this very pod say so, whatever else it says; and that it is nominated for the node, if there is one."""
    said = {
        "type": names.admitted,
        "status": str(admitted),
        "reason": notice.reason,
        "message": notice.message,
        "lastTransitionTime": at,
    }
    status: dict[str, Any] = {"conditions": [said]} | ({"nominatedNodeName": node} if node else {})
    return strategic_patch({"metadata": {"uid": pod.metadata.uid}, "status": status})
