"""Those who were let in: on their way to be bound, or bound.

| state | from | ends when |
|---|---|---|
| through | its turn came, with room | it is bound; or its time is over |
| adopted | found without a gate: another leader has let it in | room: kept; asked for: through; its time is over |
| kept | adopted, and there was room, as before or elsewhere | asked for: through; its time is over |
| bound | the watch says so | it has ended, or is gone |

All of them are charged, none of them waits.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from aliquot_core.hosts import host_request
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.fit.bounds import ANYWHERE, Bounds
from aliquot_scheduler.queues.waiting.waiter import Waiter


class Way(StrEnum):
    """How one came to be let in who is not bound."""

    THROUGH = "through"
    ADOPTED = "adopted"
    KEPT = "kept"


class Inside:
    """Who they are."""

    def __init__(self, *, names: Names) -> None:
        self._names = names
        self.bound: dict[str, Waiter] = {}
        # Not bound: who, how, and until when.
        self.coming: dict[str, Waiter] = {}
        self._ways: dict[str, Way] = {}
        self._until: dict[str, float] = {}
        # Where alone they may lie.
        self.bounds: dict[str, Bounds] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self.coming or uid in self.bound

    @property
    def under_way(self) -> int:
        """How many kube-scheduler has in hand."""
        return len(self.coming)

    def enter(self, waiter: Waiter, *, way: Way, until: float) -> None:
        """Somebody is let in, or comes in another way from now on."""
        self.coming[waiter.uid] = waiter
        self._ways[waiter.uid] = way
        self._until[waiter.uid] = until

    def keep_off(self, uid: str, models: tuple[str, ...]) -> None:
        """One of them may lie on no GPU of these models, patterns of them; on all others as before."""
        if models:
            self.bounds[uid] = msgspec.structs.replace(self.bounds.get(uid, ANYWHERE), off=models)

    def way(self, uid: str) -> Way | None:
        """How somebody came in who is not bound."""
        return self._ways.get(uid)

    def until(self, uid: str) -> float:
        """How long somebody may take to be bound."""
        return self._until[uid]

    def lasted(self, uid: str, *, now: float) -> float:
        """How long room has been kept for somebody; for nothing if none was."""
        return max(0.0, now - self._until[uid] + PROMISE) if self.way(uid) is Way.THROUGH else 0.0

    def was_adopted(self, uid: str) -> bool:
        """Whether another leader has let somebody in, and kube-scheduler has not asked for it since."""
        return self._ways.get(uid) in {Way.ADOPTED, Way.KEPT}

    def is_unasked(self, uid: str, *, now: float) -> bool:
        """Whether somebody was adopted, and the time is over in which kube-scheduler would have come by itself."""
        return self.was_adopted(uid) and self._until[uid] <= now

    def promised(self) -> list[Waiter]:
        """Those for whom room is kept."""
        return [self.coming[uid] for uid, way in self._ways.items() if way is not Way.ADOPTED]

    def changed(self, pod: Pod) -> None:
        """What is known of a pod that is on its way."""
        uid = pod.metadata.uid
        self.coming[uid] = self.coming[uid].of(pod)

    def late(self, now: float) -> list[str]:
        """Whose time is over."""
        return [uid for uid, until in self._until.items() if until <= now]

    def bind(self, waiter: Waiter) -> None:
        """Somebody is bound."""
        self.leave(waiter.uid)
        self.bound[waiter.uid] = waiter

    def is_bound_so(self, pod: Pod) -> bool:
        """Whether it was known to be bound, with this very grant."""
        known = self.bound.get(pod.metadata.uid)
        return known is not None and self._grant(known.pod) == self._grant(pod)

    def leave(self, uid: str) -> None:
        """Somebody is in no more."""
        for states in (self.coming, self.bound, self._ways, self._until, self.bounds):
            states.pop(uid, None)

    def came_by_the_same_right(self, pod: Pod) -> bool:
        """Whether one that is on its way says of evictions, its group and its size what it was let in by."""
        return self._right(pod) == self._right(self.coming[pod.metadata.uid].pod)

    def _right(self, pod: Pod) -> tuple[object, ...]:
        names, notes = self._names, pod.metadata.annotations
        said = (names.preemptible, names.group_size, names.group_min, names.group_topology)
        return (pod.metadata.labels.get(names.group), *(notes.get(name) for name in said), *host_request(pod))

    def _grant(self, pod: Pod) -> str | None:
        return pod.metadata.annotations.get(self._names.grant)
