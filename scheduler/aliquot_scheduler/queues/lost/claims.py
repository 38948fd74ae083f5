"""For whom nobody is sent away for a while: room was made for a pod, and its turn led to no binding all the same.

Else a pod that nobody can bind (its scheduler is none that runs, a claim of its is missing) sends borrowers away again
and again. So its next claim waits for its own pause, which doubles from the moment on at which it had the room: 15
minutes, 30, 60, …, a day. That is seven times in the first day, and once in each that follows. And its user in that
queue has a pause too, a minute at first and an hour at most, in which nobody goes for any pod of it; and then for one
of them at a time. That of the pod ends when it is bound,
that of the user when one of its is and it owes nothing any more (`doubts.py`). Who is gone before its turn is over has
lost it: others went for it all the same.

Users are many, if one likes. So a queue has a pause as well, from the fourth such turn of whomever on: a minute, two,
…, 15, and then nobody goes but for one at a time. It counts for users who have proved nothing: of whom no pod was bound
for which others went, or not since one was not. Each that is bound takes one of those turns back. So in a queue others
go in vain a hundred times in a day, and as often again as they go for somebody who is bound.

A leader that begins knows none of this: of a pod that it finds without a gate, and that is not bound soon, it takes the
first pause as just begun.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import ceil

import msgspec

from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Waiter

FIRST, LONGEST = 900.0, 86_400.0
USERS_FIRST, USERS_LONGEST = 60.0, 3_600.0
QUEUES_FIRST, QUEUES_LONGEST = 60.0, 900.0
# So many of a queue's pods that nobody can bind are an accident.
_ACCIDENTS = 3
_MOST_DOUBLINGS = 32
_MINUTE = 60.0


class _Pause(msgspec.Struct, frozen=True, kw_only=True):
    failures: int = 0
    until: float = 0.0

    def longer(self, *, at: float, first: float, longest: float) -> _Pause:
        wait = min(longest, first * 2.0 ** min(self.failures, _MOST_DOUBLINGS))
        return _Pause(failures=self.failures + 1, until=at + wait)


class Claims:
    """The pauses of all."""

    def __init__(self) -> None:
        # Who had room made, and is not bound yet: since when.
        self._brought: dict[str, tuple[Whose, float]] = {}
        self._pods: dict[str, _Pause] = {}
        self._users: dict[Whose, _Pause] = {}
        self._queues: dict[str, _Pause] = {}
        # Whose last pod for which others went was bound: when.
        self._proved: dict[Whose, float] = {}

    def brought_in(self, waiter: Waiter, *, now: float) -> None:
        """Others have gone for it, and its turn has come."""
        self._brought[waiter.uid] = waiter.whose, now

    def lost(self, waiter: Waiter) -> None:
        """Its turn led to nothing."""
        if (brought := self._brought.pop(waiter.uid, None)) is None:
            return
        at, pause, of_user = brought[1], self._pods.get(waiter.uid, _Pause()), self._of_user(waiter)
        self._pods[waiter.uid] = pause.longer(at=at, first=FIRST, longest=LONGEST)
        self._users[waiter.whose] = of_user.longer(at=at, first=USERS_FIRST, longest=USERS_LONGEST)
        self._proved.pop(waiter.whose, None)
        self._lost_in(waiter.queue, at=at)

    def _lost_in(self, queue: str, *, at: float) -> None:
        first = QUEUES_FIRST / 2.0**_ACCIDENTS
        self._queues[queue] = self._of_queue(queue).longer(at=at, first=first, longest=QUEUES_LONGEST)

    def bound(self, waiter: Waiter, *, now: float) -> None:
        """If others have gone for it, they have not gone for nothing."""
        if waiter.uid not in self._brought:
            return
        self._proved[waiter.whose] = now
        if of_queue := self._queues.get(waiter.queue):
            self._queues[waiter.queue] = _Pause(failures=max(0, of_queue.failures - 1), until=of_queue.until)

    def found(self, uid: str, *, now: float) -> None:
        """The leader before us has let it in, perhaps by sending others away, and it is not bound."""
        self._pods.setdefault(uid, _Pause().longer(at=now, first=FIRST, longest=LONGEST))

    def trusts(self, who: Whose) -> None:
        """Pods of that user are bound, and it owes nothing."""
        self._users.pop(who, None)

    def gone(self, uid: str) -> None:
        """A pod needs no turn any more."""
        self._brought.pop(uid, None)
        self._pods.pop(uid, None)

    def tell_time(self, now: float) -> None:
        """Who has claimed nothing for a day is forgotten."""
        self._users = {who: pause for who, pause in self._users.items() if now < pause.until + LONGEST}
        self._queues = {queue: pause for queue, pause in self._queues.items() if now < pause.until + LONGEST}
        self._proved = {who: at for who, at in self._proved.items() if now < at + LONGEST}

    def why_not(self, waiter: Waiter, *, others: Iterable[Waiter], now: float) -> str:
        """Why nobody goes for a pod now; empty if somebody may. `others` are those for whom room is being made."""
        under_way = [*(who for who, _ in self._brought.values()), *(one.whose for one in others)]
        return self._why_not_for_it(waiter, under_way, now=now) or self._why_not_there(waiter, under_way, now=now)

    def _why_not_for_it(self, waiter: Waiter, under_way: Collection[Whose], *, now: float) -> str:
        """For what became of the pod, or of others of its user."""
        pod, of_user = self._pods.get(waiter.uid, _Pause()), self._of_user(waiter)
        if pod.until > now:
            return f"room was made for it and it was not bound, so for {_minutes(pod.until - now)} nobody does"
        if of_user.until > now:
            left = _minutes(of_user.until - now)
            return f"room was made for a pod of its user's and that was not bound, so for {left} nobody does"
        if of_user.failures and waiter.whose in under_way:
            return "room is made for another pod of its user's, and pods of its before were not bound"
        return ""

    def _why_not_there(self, waiter: Waiter, under_way: Collection[Whose], *, now: float) -> str:
        """For what became of others' pods of its queue."""
        of_queue = self._of_queue(waiter.queue)
        if waiter.whose in self._proved or of_queue.failures <= _ACCIDENTS:
            return ""
        if of_queue.until > now:
            left = _minutes(of_queue.until - now)
            return f"room was made for pods of its queue that were not bound, so for {left} nobody does"
        if any(queue == waiter.queue for queue, _ in under_way):
            return "room is made for another pod of its queue, and pods of it before were not bound"
        return ""

    def _of_queue(self, queue: str) -> _Pause:
        return self._queues.get(queue, _Pause())

    def _of_user(self, waiter: Waiter) -> _Pause:
        return self._users.get(waiter.whose, _Pause())


def _minutes(seconds: float) -> str:
    return f"{ceil(seconds / _MINUTE)} min"
