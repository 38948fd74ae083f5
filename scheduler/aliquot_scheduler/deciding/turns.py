"""What the desk asks of those who say whose turn it is, and how a turn is told."""

from __future__ import annotations

from typing import Protocol

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.fit.bounds import Bounds
from aliquot_scheduler.fit.demand import Demand

# kube-scheduler binds some 100 a second with an extender; a promise stands for 30.
MOST_AT_ONCE = 500
# One search of 1,000 nodes takes 1 ms, and nobody is answered meanwhile; after so many in vain the rest comes next.
MOST_IN_VAIN = 12
# A pod that is found without a gate was let through by the leader before us: so long kube-scheduler may need by itself.
FOUND = 30.0


class Rooms(Protocol):
    """What those who say whose turn it is ask of the desk."""

    def promise_best(self, pod: Pod, demand: Demand, bounds: Bounds, *, now: float) -> Promise | None:
        """Keep room for a pod within bounds, or say that there is none."""
        ...

    def narrow(self, promise: Promise, demand: Demand) -> Promise:
        """Keep the same room for a pod that may have fewer GPUs than when it was found."""
        ...

    def take_back(self, uid: str) -> None:
        """Let a pod's room go."""
        ...


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is let through; `number` counts its turns, and from the second on there is no gate any more.

    Without a promise there is no room yet: the pod is shown to whoever makes clusters larger.
    """

    pod: Pod
    promise: Promise | None
    number: int
    # How often it was shown so, with this time; and by which queue's quota.
    shown: int = 0
    queue: str = ""
    # Of a group: which of its runs it is of.
    run: str = ""


class Turns(Protocol):
    """Who may be placed now."""

    def take_over(self, rooms: Rooms, *, now: float) -> None:
        """Before anybody is given room: those who were let in by the leader before us have theirs."""
        ...

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        ...

    def asked(self, pod: Pod, *, now: float) -> None:
        """A scheduler asks for a pod, whoever's turn it is."""
        ...

    def bounds(self, pod: Pod) -> Bounds:
        """Where alone a pod may lie whose turn it is."""
        ...

    def promised(self, promise: Promise) -> None:
        """Room was found for a pod whose turn it is, or may be."""
        ...

    def missed(self, pod: Pod, *, now: float) -> None:
        """The pod's turn has led to nothing: no binding in time, or no room any more."""
        ...

    def overdue(self, now: float) -> list[str]:
        """Whose turns have lasted too long (UIDs), whatever came between."""
        ...

    def pod_seen(self, pod: Pod) -> None:
        """The pod is there, or is changed."""
        ...

    def pod_gone(self, uid: str) -> None:
        """The pod needs no turn any more."""
        ...
