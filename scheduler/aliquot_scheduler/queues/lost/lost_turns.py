"""Pods whose turns led to nothing: few of them try again at a time, and their users' other pods come one by one.

A turn keeps room for half a minute. Of pods that nobody can bind each new turn is lost again, so in a cluster that is
idle but for them others would find no room for as long as there are such pods. Here is told what came of each turn, and
known what follows:

1. who has lost a turn stands behind its user's pods that have lost fewer (`line.py`);
2. those who have lost turns try again few at a time, and in turns (`tries.py`);
3. the other pods of a user who owes what turns have kept for nothing come one by one (`doubts.py`).

What is known of a user outlives its pods: who deletes them, and makes them anew, is no better off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_scheduler.queues.lost.doubts import Doubts, Kept
from aliquot_scheduler.queues.lost.tries import Tries
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.waiter import Waiter


class LostTurns:
    """What came of all turns."""

    def __init__(self) -> None:
        self.doubts = Doubts()
        self.tries = Tries(doubts=self.doubts)

    def __contains__(self, uid: str) -> bool:
        return uid in self.tries.times

    @property
    def times(self) -> Mapping[str, int]:
        """How many turns each has lost that had room (UIDs)."""
        return self.tries.times

    def lost(self, waiter: Waiter, *, lasted: float, capacity: Sequence[int], now: float) -> None:
        """A turn of its has led to nothing; it had room for so long."""
        self.left(waiter, lasted=lasted, capacity=capacity, now=now)
        self.tries.lost(waiter.uid, waiter.whose, now=now)

    def left(self, waiter: Waiter, *, lasted: float, capacity: Sequence[int], now: float) -> None:
        """It had room for so long, and needs none any more: it is gone, or waits by another right."""
        again = waiter.uid in self.tries.times
        part = max(waiter.amounts[dim] / max(1, capacity[dim]) for dim in (COMPUTE, MEMORY))
        kept = Kept(amounts=waiter.amounts, part=part, lasted=lasted)
        self.doubts.came_to_nothing(waiter.whose, kept, again=again, now=now)

    def bound(self, waiter: Waiter, *, now: float) -> None:
        """It is as everybody, and pays what its user owes."""
        self.gone(waiter.uid, now=now)
        self.doubts.bound(waiter.uid, waiter.whose, waiter.amounts, now=now)

    def gone(self, uid: str, *, now: float) -> None:
        """It needs no turn any more, and holds nothing; its user owes as much as before."""
        self.tries.gone(uid)
        self.doubts.gone(uid, now=now)

    def tell_time(self, now: float) -> None:
        """Who has paid is in doubt no more."""
        for who in self.doubts.tell_time(now):
            self.tries.forget(who)
