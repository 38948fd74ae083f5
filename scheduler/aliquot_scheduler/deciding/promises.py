"""Promises: room that is kept for a pod from its admission until its grant is seen.

Between "it fits there" and the grant lie seconds in which others are placed. So what was found is held in the picture
under the pod's UID, as its grant will be later; and so are CPU and memory. The life of a promise:

| stage | from | ends when | then |
|---|---|---|---|
| offered | a turn or a filter call found room | bind is called | writing |
| | | its time is over | taken back: the room is free, the pod waits for a new turn |
| writing | bind was called | the API server took it | written |
| | | it refused | taken back |
| | | nobody knows | doubtful |
| written | the API server took it | the grant is seen | the grant holds the room itself |
| doubtful | the answer got lost | the grant is seen | as above |
| | | no such write can land any more | looked up at the API server: as above, or taken back |

Whatever the stage: when the pod is gone or has ended, so is the promise; when others have bound it, so is one that is
not written. A watch may lag behind by any time, so only the API server itself is asked what has become of a write.
What must always hold: room is held for a pod at most once, by its promise or by its grant, and never by neither while
a write that grants it may still land.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.fit.layout import Plan
from aliquot_scheduler.picture.picture import Picture

# A pod that kube-scheduler was given room for is bound within seconds, unless something else of the node forbids it.
PROMISE = 30.0
# After a lost answer: the API server gives a request up before this, so no write can land later.
DOUBT = 65.0
NEVER = float("inf")


class Stage(StrEnum):
    """How far a promise has come."""

    OFFERED = "offered"
    WRITING = "writing"
    WRITTEN = "written"
    DOUBTFUL = "doubtful"


class Ended(StrEnum):
    """What came of writing a binding."""

    TAKEN = "taken"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Room kept for one pod; `nodes` is where it may also be bound, if it fits there then."""

    pod: Pod
    demand: Demand
    plan: Plan
    stage: Stage
    until: float
    nodes: Collection[str]
    # Whether no other node could be better to the pod: nobody need weigh them.
    alone: bool = False

    @property
    def node(self) -> str:
        """Where the room is."""
        return self.plan.grant.node


class Promises:
    """All promises, each held in the picture as long as it stands."""

    def __init__(self, *, picture: Picture) -> None:
        self._picture = picture
        self._standing: dict[str, Promise] = {}
        # As of which change of its node each was found.
        self._found_at: dict[str, int] = {}

    def of(self, uid: str) -> Promise | None:
        """The promise for a pod, if there is one."""
        return self._standing.get(uid)

    def __len__(self) -> int:
        return len(self._standing)

    def __iter__(self) -> Iterator[Promise]:
        return iter(self._standing.values())

    def make(self, promise: Promise) -> None:
        """Hold the room; a promise that the pod had before is given up for it."""
        uid = promise.pod.metadata.uid
        self._standing[uid] = promise
        self._picture.hold(uid, {(promise.node, gpu): claim for gpu, claim in promise.plan.claims.items()})
        self._picture.lies(promise.pod, node=promise.node, granted=True)
        self._found_at[uid] = self._picture.changed_at(promise.node)

    def holds_still(self, promise: Promise) -> bool:
        """Whether nothing has changed on its node since it was made: to look once more would find the same.

        By kube-scheduler's count more may be taken than there is though no GPU has changed.
        """
        if self._found_at[promise.pod.metadata.uid] != self._picture.changed_at(promise.node):
            return False
        left = self._picture.hosts.own_left(promise.node)
        return left is not None and min(left) >= 0

    def move_on(self, uid: str, stage: Stage, *, until: float) -> None:
        """The next stage, with the same room."""
        self._standing[uid] = msgspec.structs.replace(self._standing[uid], stage=stage, until=until)

    def narrow(self, uid: str, demand: Demand) -> Promise:
        """The same room, by a demand that leaves fewer others."""
        self._standing[uid] = msgspec.structs.replace(self._standing[uid], demand=demand)
        return self._standing[uid]

    def take_back(self, uid: str) -> None:
        """Let the room go."""
        if self._standing.pop(uid, None) is not None:
            del self._found_at[uid]
            self._picture.hold(uid, {})
            self._picture.hosts.release(uid)

    def kept(self, uid: str) -> None:
        """The grant is seen, and holds the room from now on."""
        self._standing.pop(uid, None)
        self._found_at.pop(uid, None)

    def overdue(self, now: float) -> list[Promise]:
        """Those whose time is over."""
        return [promise for promise in self._standing.values() if promise.until <= now]
