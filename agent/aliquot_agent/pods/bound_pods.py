"""The pods bound to this node, by UID: a name may be used again, a UID never."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from aliquot_agent.signal import Signal
from aliquot_core.held_on_sick import Held, held_on_sick
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced

# More than come to their end within the seconds for which it matters; one that fell out costs those seconds.
_ENDS_KEPT = 64


class BoundPods:
    """What the API server says of this node's pods; a subscriber of a mirror."""

    def __init__(self, *, changed: Signal) -> None:
        self._pods: dict[str, Pod] = {}
        self._changed = changed
        # Pods that are gone and had ended before; the last so many.
        self._past: deque[str] = deque(maxlen=_ENDS_KEPT)
        self.complete = False

    @property
    def by_uid(self) -> Mapping[str, Pod]:
        """All of them, live and read-only."""
        return MappingProxyType(self._pods)

    def ended(self, uid: str) -> bool:
        """Whether a pod has come to its end, be its object here or gone since."""
        pod = self._pods.get(uid)
        return pod.ended if pod is not None else uid in self._past

    def on_sick(self, inventory: Inventory, *, names: Names) -> Mapping[str, Held] | None:
        """What they hold of GPUs that are sick or not there, by uuid; None before all of them are known."""
        return held_on_sick(self._pods.values(), inventory=inventory, names=names) if self.complete else None

    def take(self, change: Change[Pod]) -> None:
        """Follow one change."""
        match change:
            case Added(new=pod) | Modified(new=pod):
                self._pods[pod.metadata.uid] = pod
            case Deleted(old=pod):
                self._pods.pop(pod.metadata.uid, None)
                if pod.ended:
                    self._past.append(pod.metadata.uid)
            case Synced():
                self.complete = True
        self._changed.notify()
