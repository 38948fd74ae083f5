"""Pods that are gone, as long as somebody may still ask for one.

Our watch may be ahead of kube-scheduler's: it then asks for a pod after we were told its end. Nobody would ever tell us
of that pod again, so room and quota would be kept for it until its turn is over.
"""

from __future__ import annotations

from aliquot_core.objects import Pod

# Seconds for which one is known at the least, and about twice as many at the most. What it costs meanwhile is
# a UID; a pod that is there takes kilobytes.
_KNOWN = 60.0


class Departed:
    """Their UIDs, in two halves: the older one is dropped each minute."""

    def __init__(self) -> None:
        self._lately: set[str] = set()
        self._before: set[str] = set()
        self._since = 0.0

    def gone(self, uid: str) -> None:
        """It has ended, or is there no more."""
        self._lately.add(uid)

    def seen(self, uid: str) -> None:
        """It is there: whoever said that it was gone had read of a cluster that was put back."""
        self._lately.discard(uid)
        self._before.discard(uid)

    def tell_time(self, now: float) -> None:
        """Forget those of whom nobody asks any more."""
        if now - self._since >= _KNOWN:
            self._before, self._lately, self._since = self._lately, set(), now

    def why_not(self, uid: str, *, known: Pod | None) -> str:
        """Why nothing is begun for a pod any more, given what was told of it last; empty if something may be."""
        if uid in self._lately or uid in self._before:
            return "the pod has ended or is gone"
        return "the pod is being deleted" if known and known.metadata.deletion_timestamp else ""
