"""For whom nobody is sent away for a while: room was made for a pod, and its turn led to no binding all the same.

Else a pod that nobody can bind (its scheduler is none that runs, a claim of its is missing) sends borrowers away again
and again. So its next claim waits for its own pause, which doubles from the moment on at which it had the room: 15
minutes, 30, 60, …, a day. That is seven times in the first day, and once in each that follows. And its user in that
queue has a pause too, a minute at first and an hour at most, in which nobody goes for any pod of it; and then for one
of them at a time. That of the pod ends when it is bound,
that of the user when one of its is and it owes nothing any more (`doubts.py`). Who is gone before its turn is over has
lost it: others went for it all the same.

A leader that begins knows none of this: of a pod that it finds without a gate, and that is not bound soon, it takes the
first pause as just begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import msgspec

from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Waiter

FIRST, LONGEST = 900.0, 86_400.0
USERS_FIRST, USERS_LONGEST = 60.0, 3_600.0
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

    def why_not(self, waiter: Waiter, *, others: Iterable[Waiter], now: float) -> str:
        """Why nobody goes for a pod now; empty if somebody may. `others` are those for whom room is being made."""
        pod, of_user = self._pods.get(waiter.uid, _Pause()), self._of_user(waiter)
        if pod.until > now:
            return f"room was made for it and it was not bound, so for {_minutes(pod.until - now)} nobody does"
        if of_user.until > now:
            left = _minutes(of_user.until - now)
            return f"room was made for a pod of its user's and that was not bound, so for {left} nobody does"
        under_way = (*(who for who, _ in self._brought.values()), *(one.whose for one in others))
        if of_user.failures and waiter.whose in under_way:
            return "room is made for another pod of its user's, and pods of its before were not bound"
        return ""

    def _of_user(self, waiter: Waiter) -> _Pause:
        return self._users.get(waiter.whose, _Pause())


def _minutes(seconds: float) -> str:
    return f"{ceil(seconds / _MINUTE)} min"
