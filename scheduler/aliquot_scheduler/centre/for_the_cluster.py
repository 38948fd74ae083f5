"""Whether a pod with slices may go for one that runs the cluster and waits, when our webhook is asked about it.

kube-scheduler evicts beside its other work, and writes the nomination by which we know for whom at the same moment: so
of a refusal that comes before that is heard it would think that the victim is gone, and look again when something
changes or after five minutes. DNS must not wait for that: before anybody is refused the watch is given a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.centre.binder import NotReadyError
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.extender.preemptors import NOMINATED_WITHIN, Preemptors

_LOOK = 0.05


class ForTheCluster:
    """Knows who waits."""

    def __init__(self, *, means: Means, labels_of: Callable[[str], Mapping[str, str]]) -> None:
        """`labels_of` tells the labels of a namespace by its name."""
        self._clock, self._why_not = means.clock, means.why_not
        self._labels_of = labels_of
        self._waiting = Preemptors(names=means.names)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Deleted(old=pod):
                self._waiting.gone(pod)
            case Modified(old=old, new=pod):
                if old.metadata.uid != pod.metadata.uid:
                    self._waiting.gone(old)
                self._seen(pod)
            case Added(new=pod):
                self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        labels = self._labels_of(pod.metadata.namespace)
        self._waiting.seen(pod, labels=labels, now=self._clock.monotonic())

    async def one_for(self, victim: Pod) -> Pod | None:
        """For whom it may go; None if there is nobody after a moment either."""
        until = self._clock.monotonic() + NOMINATED_WITHIN
        while True:
            if why := self._why_not():
                raise NotReadyError(why, where="centre", remedy="kube-scheduler evicts as without us meanwhile")
            now = self._clock.monotonic()
            found = self._waiting.one_for(victim, now=now)
            if found is not None or now >= until:
                return found
            await self._clock.sleep(_LOOK)
