"""Whose turn it is, first come first served: pods wait behind their gate until there is room, and are let through.

A gate that was lifted can't be put back. So a pod that was let through and found no node within its promise's time (its
CPU is nowhere free, say) loses its turn: the room goes to others, the extender refuses the pod, and after a while that
grows with each time it gets a new turn. kube-scheduler is told of that by a change of the pod; by itself it would look
again after five minutes.

A pod that does not fit holds up nobody behind it, nor does one that can't be told of its turn or bound. No more turns
are under way at once than kube-scheduler works off in the time of a promise.

What must always hold: a pod that is neither bound nor on its way to be gone waits, or is through for a limited time, or
stands behind a gate that is not ours.
"""

from __future__ import annotations

from bisect import bisect_right
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
# One search of 1,000 nodes takes 0.6 ms, and nobody is answered meanwhile; after so many in vain the rest comes next.
MOST_IN_VAIN = 32
_AGAIN = Backoff(first=5.0, longest=300.0)
_TELL_AGAIN = Backoff(first=1.0, longest=60.0)
# A pod that is found without a gate was let through by the leader before us: so long kube-scheduler may need by itself.
FOUND = 30.0
# A longer number on a pod is not ours.
_DIGITS = 10


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is let through; `number` counts its turns, and from the second on there is no gate any more."""

    pod: Pod
    promise: Promise
    number: int


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    demand: Demand


class _Later(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that waits for a time: so many turns were lost, and so often it could not be told of one."""

    until: float
    lost: int = 0
    untold: int = 0


_Age = tuple[str, str]
# Keeps room for a pod, or says that there is none.
Promising = Callable[[Pod, Demand], Promise | None]


class FirstCome:
    """The order of turns without queues."""

    def __init__(self, *, names: Names, random: Random) -> None:
        self._names = names
        self._random = random
        self._now = 0.0
        self._waiting: dict[str, _Waiting] = {}
        self._later: dict[str, _Later] = {}
        # Until when, by UID.
        self._through: dict[str, float] = {}
        # Behind whom the search goes on, if it was broken off.
        self._behind: _Age | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def pod_seen(self, pod: Pod) -> None:
        """A pod is there, or is changed."""
        uid = pod.metadata.uid
        if pod.ended or pod.spec.node_name or pod.metadata.deletion_timestamp:
            self.pod_gone(uid)
        elif uid not in self._through and self._may_wait(pod):
            if not pod.spec.scheduling_gates and uid not in self._later:
                self._later[uid] = _Later(until=self._now + FOUND)
            self._wait(pod)

    def pod_gone(self, uid: str) -> None:
        """A pod needs no turn any more."""
        self._waiting.pop(uid, None)
        self._later.pop(uid, None)
        self._through.pop(uid, None)

    def why_not(self, pod: Pod) -> str:
        """Why it is not the pod's turn; empty if it is."""
        uid = pod.metadata.uid
        later = self._later.get(uid)
        if uid in self._through or later is None or not later.lost:
            return ""
        return f"its turn led to no binding ({later.lost} times); it gets a new one"

    def promised(self, promise: Promise) -> None:
        """Room was found for a pod: kube-scheduler has it in hand, and no longer than it would for a turn of ours."""
        uid = promise.pod.metadata.uid
        self._waiting.pop(uid, None)
        self._through.setdefault(uid, promise.until)

    def missed(self, pod: Pod, *, now: float) -> None:
        """A turn has led to nothing: no binding in time, or no room any more."""
        uid = pod.metadata.uid
        self._through.pop(uid, None)
        lost = self._later[uid].lost + 1 if uid in self._later else 1
        self._later[uid] = _Later(lost=lost, until=now + _AGAIN.delay(failures=lost, random=self._random))
        self._wait(pod)

    def not_told(self, pod: Pod, *, now: float) -> None:
        """The pod could not be told of its turn: the next try comes later, since others may be told."""
        uid = pod.metadata.uid
        if self._through.pop(uid, None) is None:
            return
        before = self._later.get(uid, _Later(until=now))
        wait = _TELL_AGAIN.delay(failures=before.untold + 1, random=self._random)
        self._later[uid] = msgspec.structs.replace(before, untold=before.untold + 1, until=now + wait)
        self._wait(pod)

    def overdue(self, now: float) -> list[str]:
        """Whose turns have lasted too long (UIDs)."""
        self._now = now
        return [uid for uid, until in self._through.items() if until <= now]

    def turns(self, promising: Promising, *, now: float) -> Iterator[Turn]:
        """Let through whoever can be; each turn is to be carried out by the caller."""
        refused: set[PodRequest] = set()
        for uid, waiting in self._line():
            if len(self._through) >= MOST_AT_ONCE:
                return
            later = self._later.get(uid)
            if (later is not None and now < later.until) or waiting.demand.request in refused:
                continue
            promise = promising(waiting.pod, waiting.demand)
            if promise is None:
                # Of thousands of equal pods one is asked for.
                refused.add(waiting.demand.request)
                if len(refused) == MOST_IN_VAIN:
                    self._behind = _age((uid, waiting))
                    return
                continue
            self._through[uid] = promise.until
            del self._waiting[uid]
            number = max(_turns_had(waiting.pod, names=self._names), later.lost if later else 0) + 1
            yield Turn(pod=waiting.pod, promise=promise, number=number)

    def _line(self) -> list[tuple[str, _Waiting]]:
        """Who waits, the oldest first; or first those to whom the last search did not come."""
        line = sorted(self._waiting.items(), key=_age)
        start = bisect_right(line, self._behind, key=_age) if self._behind else 0
        self._behind = None
        return line[start:] + line[:start]

    def _may_wait(self, pod: Pod) -> bool:
        """Whether ours is the last gate, or there is none: a turn is for pods that can use it."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        return not gates or gates == [self._names.gate]

    def _wait(self, pod: Pod) -> None:
        try:
            request = parse_request(pod, names=self._names)
        except AliquotError:
            # The webhook refuses it; who came past it waits, and `aliquot explain` says why.
            self._waiting.pop(pod.metadata.uid, None)
            return
        self._waiting[pod.metadata.uid] = _Waiting(pod=pod, demand=demand_of(request))


def _turns_had(pod: Pod, *, names: Names) -> int:
    """As the pod itself says: another leader may have given them, and only another number is a change of the pod."""
    written = pod.metadata.annotations.get(names.turn, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) < _DIGITS else 0


def _age(item: tuple[str, _Waiting]) -> _Age:
    uid, waiting = item
    return waiting.pod.metadata.creation_timestamp or "", uid
