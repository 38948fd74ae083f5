"""Pods whose turns led to nothing: few of them try again at a time, and their users' other pods come one by one.

A turn keeps room for half a minute. Of pods that nobody can bind each new turn is lost again, so in a cluster that is
idle but for them others would find no room for as long as there are such pods. So

1. who has lost a turn stands behind its user's pods that have lost fewer (`line.py`);
2. those who have lost turns have at most a quarter of all cards and of all turns that are given at once, or one of them
   whatever it asks; the others rest on. Who stands in line for longer than a minute has no room, and does not count;
3. while others wait none of them tries for three turns after one of them lost another turn, and for five seconds after
   a first one was lost: others have what that leaves;
4. a user who has lost a turn with a pod's first is in doubt until a pod of it is bound in that queue: as long, its
   pods come in one by one, and not at all in the time of rule 3. Not where the queue is guaranteed anything: what is
   held back there is of use to nobody else.

Nobody else's room is held for more than a quarter of the time, so; and whoever is bound is as everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.deciding.turns import MOST_AT_ONCE
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Waiter

PART = 4
PAUSE = (PART - 1) * PROMISE
# Who may not try yet is looked at again after so long; and who has no room for so long keeps nobody from trying.
_AGAIN = 5.0
_NO_ROOM = 60.0


class Probation:
    """Who has lost turns, and who is in doubt for that."""

    def __init__(self) -> None:
        # How many turns each has lost that had room (UIDs).
        self.times: dict[str, int] = {}
        self._whose: dict[str, Whose] = {}
        self._doubted: dict[Whose, set[str]] = {}
        self._joined: dict[str, float] = {}
        self._paused = -inf

    def __contains__(self, uid: str) -> bool:
        return uid in self.times

    def lost(self, waiter: Waiter, *, now: float) -> None:
        """A turn of its has led to nothing."""
        uid, who = waiter.uid, whose(waiter)
        self.times[uid] = self.times.get(uid, 0) + 1
        again = self.times[uid] > 1 or who in self._doubted
        self._paused = max(self._paused, now + (PAUSE if again else _AGAIN))
        self._whose[uid] = who
        self._doubted.setdefault(who, set()).add(uid)

    def bound(self, waiter: Waiter) -> None:
        """It is as everybody, and its user is in doubt no more."""
        self.gone(waiter.uid)
        for uid in self._doubted.pop(whose(waiter), ()):
            del self._whose[uid]

    def gone(self, uid: str) -> None:
        """A pod needs no turn any more; whose last one this was is in doubt no more."""
        self.times.pop(uid, None)
        self._joined.pop(uid, None)
        who = self._whose.pop(uid, None)
        if who is not None:
            self._doubted[who].remove(uid)
            if not self._doubted[who]:
                del self._doubted[who]

    def is_paused(self, *, now: float) -> bool:
        """Whether none may try while others wait."""
        return now < self._paused

    def in_doubt(self, who: Whose) -> bool:
        """Whether a user's pods come one by one."""
        return who in self._doubted

    @property
    def anybody_in_doubt(self) -> bool:
        """Whether that is so of any."""
        return bool(self._doubted)

    def trying(self, standing: Iterable[Waiter], coming: Iterable[Waiter], *, now: float) -> list[Waiter]:
        """Of these the ones that have lost turns and try again: under way, or in a line where they may find room."""
        waits = (one for one in standing if now - self._joined.get(one.uid, -inf) < _NO_ROOM)
        return [*waits, *(one for one in coming if one.uid in self.times)]

    def rests_until(
        self, waiter: Waiter, trying: Sequence[Waiter], *, others_wait: bool, capacity: Sequence[int], now: float
    ) -> float:
        """Until when one that has lost turns rests on while these try; not later than now if it may try too."""
        if others_wait and self.is_paused(now=now):
            return self._paused
        if self._has_place(waiter, trying, capacity):
            self._joined[waiter.uid] = now
            return now
        return now + _AGAIN

    def _has_place(self, waiter: Waiter, trying: Sequence[Waiter], capacity: Sequence[int]) -> bool:
        # A gang starts as a whole, so it tries as a whole.
        if not trying or (waiter.gang and any(one.gang == waiter.gang for one in trying)):
            return True
        if len(trying) >= MOST_AT_ONCE // PART:
            return False
        return all(
            PART * (waiter.amounts[dim] + sum(one.amounts[dim] for one in trying)) <= capacity[dim]
            for dim in (COMPUTE, MEMORY)
        )


def whose(waiter: Waiter) -> Whose:
    """Its queue and user."""
    return waiter.queue, waiter.user
