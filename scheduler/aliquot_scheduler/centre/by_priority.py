"""Pods with slices that a kube-scheduler evicts for pods without, by priority alone: nothing of ours asked for it.

It tells the victim by a condition before it deletes it. Where it asks us before (daemonset/spared-slices.yaml), or our
webhook refuses it (`admission/sparing.py`), that is for pods that run the cluster alone; people are to see who it was.
"""

from __future__ import annotations

import logging
from typing import Final

from aliquot_core.objects import Pod
from aliquot_kube.changes import Change, Modified
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.extender.preempting import goes_by_priority
from aliquot_scheduler.queues.telling.notices import Notice

log = logging.getLogger(__name__)

# Kubernetes' own words.
_TARGET, _BY_SCHEDULER = "DisruptionTarget", "PreemptionByScheduler"

EVICTED: Final = Notice(
    reason="EvictedByPriority",
    message="kube-scheduler evicts it for a pod of higher priority, and not its queue; its operator can keep it from "
    "that (docs/preemption.md)",
)


class EvictionsByPriority:
    """Counts them, and says so on each."""

    def __init__(self, *, means: Means) -> None:
        self._events, self._names = means.events, means.names
        self.count = 0

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells; who said so when our reign began was told of by the one before."""
        match change:
            case Modified(old=old, new=pod) if _is_evicted(pod) and not _is_evicted(old):
                if not goes_by_priority(pod, names=self._names):
                    self._tell(pod)

    def _tell(self, pod: Pod) -> None:
        self.count += 1
        self._events.tell(pod, EVICTED, action="Evicting", warning=True)
        about = {"pod": pod.key, "node": pod.spec.node_name, "priority": pod.spec.priority}
        log.warning("a pod with slices is evicted by its priority", extra=about)


def _is_evicted(pod: Pod) -> bool:
    return any((one.type, one.status, one.reason) == (_TARGET, "True", _BY_SCHEDULER) for one in pod.status.conditions)
