"""Pods that run the cluster and wait for room: for these alone a kube-scheduler may send away who has slices.

What it writes on a victim names no pod for which it is. But for whom it evicts it nominates for the victim's node, at
the same moment; and whoever it has found to fit nowhere, and has nominated nowhere, it evicts nobody for. So one that
waits in vain, for a volume say, opens no node to others. All is told once per event, and looked up by the node.
"""

from __future__ import annotations

from typing import Final

from aliquot_core.names import Names
from aliquot_core.node_rules import UnreadableAffinityError, names_of, wanted_by
from aliquot_core.objects import Pod
from aliquot_scheduler.extender.preempting import runs_the_cluster

# Of one that may yet be nominated for any node.
_ANYWHERE: Final = ""
# Kubernetes' own words, of one that was looked at in vain.
_LOOKED_AT: Final = ("Unschedulable", "SchedulerError")


class Preemptors:
    """Who they are, and where each may lie."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._node_of: dict[str, str] = {}
        self._at: dict[str, dict[str, Pod]] = {}

    def seen(self, pod: Pod) -> None:
        """The last word on a pod."""
        self.gone(pod)
        node = self._node_for(pod)
        if node is not None:
            self._node_of[pod.metadata.uid] = node
            self._at.setdefault(node, {})[pod.metadata.uid] = pod

    def gone(self, pod: Pod) -> None:
        """It is no more."""
        node = self._node_of.pop(pod.metadata.uid, None)
        if node is not None:
            there = self._at[node]
            del there[pod.metadata.uid]
            if not there:
                del self._at[node]

    def one_for(self, victim: Pod) -> Pod | None:
        """For whom this pod may go; None if for nobody."""
        for node in (victim.spec.node_name, _ANYWHERE):
            for pod in self._at.get(node, {}).values():
                if pod.spec.priority > victim.spec.priority:
                    return pod
        return None

    def _node_for(self, pod: Pod) -> str | None:
        """Where others may go for it; None where nobody does."""
        spec, status = pod.spec, pod.status
        is_off = spec.node_name or pod.ended or pod.metadata.deletion_timestamp or spec.scheduling_gates
        if is_off or spec.preemption_policy == "Never" or not runs_the_cluster(pod, names=self._names):
            return None
        if status.nominated_node_name:
            return status.nominated_node_name
        if any(one.type == "PodScheduled" and one.reason in _LOOKED_AT for one in status.conditions):
            return None
        return _pinned_to(pod)


def _pinned_to(pod: Pod) -> str:
    """The one node that it may lie on, as DaemonSets say it."""
    try:
        named = names_of(wanted_by(pod))
    except UnreadableAffinityError:
        return _ANYWHERE
    return next(iter(named)) if len(named) == 1 else _ANYWHERE
