"""Whether a pod with slices may go for one that runs the cluster and waits, when our webhook is asked about it.

kube-scheduler evicts beside its other work, and writes the nomination by which we know for whom at the same moment: so
of a refusal that comes before that is heard it would think that the victim is gone, and look again when something
changes or after five minutes. DNS must not wait for that: before anybody is refused the watch is given a moment.
"""

from __future__ import annotations

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_scheduler.centre.binder import NotReadyError
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.extender.preemptors import Preemptors

# The watch is some milliseconds behind; a busy API server and our own longest rounds are within this.
PATIENCE = 0.5
_LOOK = 0.05


class ForTheCluster:
    """Knows who waits."""

    def __init__(self, *, means: Means) -> None:
        self._clock, self._why_not = means.clock, means.why_not
        self._waiting = Preemptors(names=means.names)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Deleted(old=pod):
                self._waiting.gone(pod)
            case Modified(old=old, new=pod):
                if old.metadata.uid != pod.metadata.uid:
                    self._waiting.gone(old)
                self._waiting.seen(pod, now=self._clock.monotonic())
            case Added(new=pod):
                self._waiting.seen(pod, now=self._clock.monotonic())

    async def one_for(self, victim: Pod) -> Pod | None:
        """For whom it may go; None if there is nobody after a moment either."""
        until = self._clock.monotonic() + PATIENCE
        while True:
            if why := self._why_not():
                raise NotReadyError(why, where="centre", remedy="kube-scheduler evicts as without us meanwhile")
            now = self._clock.monotonic()
            found = self._waiting.one_for(victim, now=now)
            if found is not None or now >= until:
                return found
            await self._clock.sleep(_LOOK)
