"""Pods with slices that a kube-scheduler evicts for pods without, by priority alone: nothing of ours asked for it.

It tells the victim by a condition before it deletes it. Where it asks us before (daemonset/spared-slices.yaml), or our
webhook refuses it (`admission/sparing.py`), that is for pods that run the cluster alone; people are to see who it was.

While nobody leads whoever it chooses goes: who begins to lead finds those in its first list. Which of them the leader
before has told of is written nowhere; it told of all until it beat last, if it had read all by then
(`kube/election.py`). So what was written a few seconds before or after that may be told of twice, and nothing later is
left out.
"""

from __future__ import annotations

import logging
from typing import Final

from aliquot_core.instants import seconds_of
from aliquot_core.objects import Pod, PodCondition
from aliquot_kube.changes import Added, Change, Modified, Synced
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.extender.preempting import goes_by_priority
from aliquot_scheduler.queues.telling.notices import Notice

log = logging.getLogger(__name__)

# Kubernetes' own words.
_TARGET, _BY_SCHEDULER = "DisruptionTarget", "PreemptionByScheduler"
# A condition's time is cut to its second, the clocks of two machines differ by another, and a leader hears of it within
# a third.
_BEHIND = 3.0

EVICTED: Final = Notice(
    reason="EvictedByPriority",
    message="kube-scheduler evicts it for a pod of higher priority, and not its queue; its operator can keep it from "
    "that (docs/priority-evictions.md)",
)


class EvictionsByPriority:
    """Counts them, and says so on each."""

    def __init__(self, *, means: Means, led_until: float | None) -> None:
        """`led_until`: when whoever led before beat last, by its wall clock; None where nobody is known to have led."""
        self._events, self._names = means.events, means.names
        self._told_until = float("-inf") if led_until is None else led_until - _BEHIND
        self._all_known = False
        self.count = 0

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Synced():
                self._all_known = True
            case Modified(old=old, new=pod) if old.metadata.uid == pod.metadata.uid and _sentence(old):
                pass
            case Added(new=pod) | Modified(new=pod):
                sentence = _sentence(pod)
                if sentence and not goes_by_priority(pod, names=self._names) and not self._is_told(sentence):
                    self._tell(pod)

    def _is_told(self, sentence: PodCondition) -> bool:
        """Whether the leader before us has told of it; without a time nobody knows."""
        at = seconds_of(sentence.last_transition_time)
        return not self._all_known and at is not None and at < self._told_until

    def _tell(self, pod: Pod) -> None:
        self.count += 1
        self._events.tell(pod, EVICTED, action="Evicting", warning=True)
        about = {"pod": pod.key, "node": pod.spec.node_name, "priority": pod.spec.priority}
        log.warning("a pod with slices is evicted by its priority", extra=about)


def _sentence(pod: Pod) -> PodCondition | None:
    """By what kube-scheduler says that it evicts it."""
    said = (one for one in pod.status.conditions if (one.type, one.reason) == (_TARGET, _BY_SCHEDULER))
    return next((one for one in said if one.status == "True"), None)
