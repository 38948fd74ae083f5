"""Whose turn it is, first come first served: pods wait behind their gate until there is room, and are let through.

A gate that was lifted can't be put back. So a pod that was let through and found no node within its promise's time (its
CPU is nowhere free, say) loses its turn: the room goes to others, the extender refuses the pod, and after a while that
grows with each time it gets a new turn. kube-scheduler is told of that by a change of the pod; by itself it would look
again after five minutes.

A pod that does not fit holds up nobody behind it. No more turns are under way at once than kube-scheduler works off in
the time of a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from aliquot_core.backoff import Backoff, Random
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import PodRequest, parse_request
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.fit.demand import Demand, demand_of

# kube-scheduler binds some 100 a second with an extender; a promise stands for 30.
MOST_AT_ONCE = 500
_AGAIN = Backoff(first=5.0, longest=300.0)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is let through; `number` counts its turns, and from the second on there is no gate any more."""

    pod: Pod
    promise: Promise
    number: int


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    demand: Demand


class _Lost(msgspec.Struct, frozen=True, kw_only=True):
    times: int
    until: float


# Keeps room for a pod, or says that there is none.
Promising = Callable[[Pod, Demand], Promise | None]


class FirstCome:
    """The order of turns without queues."""

    def __init__(self, *, names: Names, random: Random) -> None:
        self._names = names
        self._random = random
        self._waiting: dict[str, _Waiting] = {}
        self._lost: dict[str, _Lost] = {}
        self._through: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        if pod.ended or pod.spec.node_name or pod.metadata.deletion_timestamp:
            self.pod_gone(uid)
        elif uid not in self._through and (self._is_next(pod) or uid in self._lost):
            self._wait(pod)

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more."""
        self._waiting.pop(uid, None)
        self._lost.pop(uid, None)
        self._through.discard(uid)

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        uid = pod.metadata.uid
        if uid in self._through or uid not in self._lost:
            return ""
        return f"its turn led to no binding ({self._lost[uid].times} times); it gets a new one"

    def missed(self, pod: Pod, *, now: float) -> None:
        """A turn has led to nothing: no binding in time, or no room any more."""
        uid = pod.metadata.uid
        if uid not in self._through:
            return
        self._through.discard(uid)
        times = self._lost[uid].times + 1 if uid in self._lost else 1
        self._lost[uid] = _Lost(times=times, until=now + _AGAIN.delay(failures=times, random=self._random))
        self._wait(pod)

    def not_told(self, pod: Pod) -> None:
        """The pod could not be told of its turn: it waits on as if there had been none."""
        if pod.metadata.uid in self._through:
            self._through.discard(pod.metadata.uid)
            self._wait(pod)

    def turns(self, promising: Promising, *, now: float) -> Iterator[Turn]:
        """Let through whoever can be; each turn is to be carried out by the caller."""
        refused: set[PodRequest] = set()
        for uid, waiting in sorted(self._waiting.items(), key=_age):
            if len(self._through) >= MOST_AT_ONCE:
                return
            lost = self._lost.get(uid)
            if waiting.demand.request in refused or (lost is not None and now < lost.until):
                continue
            promise = promising(waiting.pod, waiting.demand)
            if promise is None:
                # Of thousands of equal pods one is asked for.
                refused.add(waiting.demand.request)
                continue
            self._through.add(uid)
            del self._waiting[uid]
            yield Turn(pod=waiting.pod, promise=promise, number=lost.times + 1 if lost else 1)

    def next_chance(self) -> float | None:
        """When the first pod that lost its turn may have another."""
        return min((lost.until for uid, lost in self._lost.items() if uid in self._waiting), default=None)

    def _is_next(self, pod: Pod) -> bool:
        """Whether ours is the last gate: a turn is for pods that can use it."""
        return [gate.name for gate in pod.spec.scheduling_gates] == [self._names.gate]

    def _wait(self, pod: Pod) -> None:
        try:
            request = parse_request(pod, names=self._names)
        except AliquotError:
            # The webhook refuses it; who came past it waits, and `aliquot explain` says why.
            return
        self._waiting[pod.metadata.uid] = _Waiting(pod=pod, demand=demand_of(request))


def _age(item: tuple[str, _Waiting]) -> tuple[str, str]:
    uid, waiting = item
    return waiting.pod.metadata.creation_timestamp or "", uid
