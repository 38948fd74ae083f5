"""In which state a pod is, by what is written on it: its node, its gate, and the leader's last word.

A gate that was lifted does not come back. So whose turn led to nothing, and who is shown to a cluster autoscaler, has
none and waits all the same: the leader has said so in the condition since, or since when it is shown.
"""

from __future__ import annotations

from enum import Enum, auto

from aliquot_core.names import Names
from aliquot_core.objects import Pod, PodCondition
from aliquot_scheduler.fit.bounds import Bounds


class State(Enum):
    """Of a pod that has not ended."""

    WAITING = auto()
    # It has no gate and no node, and the leader counts it as in.
    LET_IN = auto()
    # It has no gate, and waits again or is shown only.
    LET_IN_NO_MORE = auto()
    BOUND = auto()

    @property
    def is_in(self) -> bool:
        """Whether it is charged."""
        return self in {State.LET_IN, State.BOUND}


def state_of(pod: Pod, *, names: Names) -> State:
    """By what stands on the pod."""
    if pod.spec.node_name:
        return State.BOUND
    if pod.spec.scheduling_gates:
        return State.WAITING
    waits = names.shown in pod.metadata.annotations or was_told_to_wait(pod, names=names)
    return State.LET_IN_NO_MORE if waits else State.LET_IN


def said_of(pod: Pod, *, names: Names) -> PodCondition | None:
    """What the pod says now, if it says anything."""
    return next((one for one in pod.status.conditions if one.type == names.admitted), None)


def was_told_to_wait(pod: Pod, *, names: Names) -> bool:
    """Whether it says that it waits."""
    said = said_of(pod, names=names)
    return said is not None and said.status == "False"


def promised_to(pod: Pod, *, names: Names) -> Bounds | None:
    """Where room is kept for a pod that is let in; None where none is, or it is bound."""
    if state_of(pod, names=names) is not State.LET_IN:
        return None
    node, *gpus = pod.metadata.annotations.get(names.promised, "").split() or [""]
    return Bounds(node=node, gpus=tuple(gpus)) if node else None
