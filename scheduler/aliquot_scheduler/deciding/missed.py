"""Turns that have led to no binding: who is told, and how they are counted."""

from __future__ import annotations

from enum import StrEnum

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.turns import Turns


class Said(StrEnum):
    """What kube-scheduler has said of a pod."""

    # It has looked: at times without a question to us, where each node fails by what is its own business.
    UNSCHEDULABLE = "unschedulable"
    # Or that it could not ask us.
    NOTHING = "nothing"


def said_of(pod: Pod) -> Said:
    """By its condition; it stays as it was written first, so a pod of which it was once said is no witness."""
    words = ((one.type, one.reason) for one in pod.status.conditions)
    return Said.UNSCHEDULABLE if ("PodScheduled", "Unschedulable") in words else Said.NOTHING


class MissedTurns:
    """All of them, since it was made."""

    def __init__(self, *, turns: Turns) -> None:
        self._turns = turns
        self._turned_away: set[str] = set()
        # Of all pods, by what kube-scheduler has said of them.
        self.counts = dict.fromkeys(Said, 0)

    def note(self, uid: str, pod: Pod | None, *, now: float) -> None:
        """A turn has led to nothing; whether the pod needs another one the last word on it says."""
        if pod is not None and pod.spec.node_name:
            self._turns.pod_seen(pod)
        elif pod is None or pod.metadata.deletion_timestamp:
            self._turns.pod_gone(uid)
        else:
            self._turned_away.add(uid)
            self.counts[said_of(pod)] += 1
            self._turns.missed(pod, now=now)

    def turned_away(self) -> set[str]:
        """Whose turn has led to nothing (UIDs), since this was asked last."""
        found, self._turned_away = self._turned_away, set()
        return found
