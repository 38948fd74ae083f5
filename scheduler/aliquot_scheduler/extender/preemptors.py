"""Pods that run the cluster and wait for room: for these alone a kube-scheduler may send away who has slices.

What it writes on a victim names no pod for which it is. But for whom it evicts it nominates for the victim's node, at
the same moment; and whoever it has found to fit nowhere, and has nominated nowhere, it evicts nobody for. So one that
waits in vain, for a volume say, opens no node to others; nor, after a while, one at which nobody has looked at all: it
names a scheduler that is not there, say. All is told once per event, and looked up by the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aliquot_core.names import Names
from aliquot_core.node_rules import UnreadableAffinityError, names_of, wanted_by
from aliquot_core.objects import Pod
from aliquot_scheduler.extender.preempting import runs_the_cluster

# Of one that may yet be nominated for any node.
_ANYWHERE: Final = ""
# Kubernetes' own words, of one that was looked at in vain.
_LOOKED_AT: Final = ("Unschedulable", "SchedulerError")
# kube-scheduler looks at a new pod of the system within a second, before all others. When it looks at one that has
# waited for longer, since it was away itself, it nominates it as it evicts for it.
_OVERLOOKED: Final = 60.0
# kube-scheduler evicts and nominates at the same moment. A watch is some milliseconds behind; a busy API server and the
# leader's longest rounds are within this.
NOMINATED_WITHIN: Final = 0.5


class Preemptors:
    """Who they are, and where each may lie."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self._node_of: dict[str, str] = {}
        # By UID: since when those are known who are nominated for no node yet.
        self._since: dict[str, float] = {}
        self._at: dict[str, dict[str, Pod]] = {}

    def seen(self, pod: Pod, *, labels: Mapping[str, str], now: float) -> None:
        """The last word on a pod, and the labels of its namespace."""
        uid, node = pod.metadata.uid, self._node_for(pod, labels=labels)
        since = self._since.get(uid, now)
        self.gone(pod)
        if node is None:
            return
        self._node_of[uid] = node
        self._at.setdefault(node, {})[uid] = pod
        if not pod.status.nominated_node_name:
            self._since[uid] = since

    def gone(self, pod: Pod) -> None:
        """It is no more."""
        self._since.pop(pod.metadata.uid, None)
        node = self._node_of.pop(pod.metadata.uid, None)
        if node is not None:
            there = self._at[node]
            del there[pod.metadata.uid]
            if not there:
                del self._at[node]

    def one_for(self, victim: Pod, *, now: float) -> Pod | None:
        """For whom this pod may go; None if for nobody."""
        for node in (victim.spec.node_name, _ANYWHERE):
            for uid, pod in self._at.get(node, {}).items():
                if pod.spec.priority > victim.spec.priority and now - self._since.get(uid, now) <= _OVERLOOKED:
                    return pod
        return None

    def _node_for(self, pod: Pod, *, labels: Mapping[str, str]) -> str | None:
        """Where others may go for it; None where nobody does."""
        spec, status = pod.spec, pod.status
        is_off = spec.node_name or pod.ended or pod.metadata.deletion_timestamp or spec.scheduling_gates
        runs_it = runs_the_cluster(pod, labels=labels, names=self._names)
        if is_off or spec.preemption_policy == "Never" or not runs_it:
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
