"""What came of turns: the one place that is told, and knows what follows.

A turn keeps room for half a minute. Of pods that nobody can bind each new turn is lost again, so in a cluster that is
idle but for them others would find no room for as long as there are such pods. Of a turn that led to nothing follows:

1. the pod rests, the longer the more it has lost (`rests.py`), and then stands behind its user's pods that have lost
   fewer (`line.py`);
2. those who have lost turns try again few at a time, and in turns (`tries.py`);
3. the other pods of a user who owes what turns have kept for nothing come one by one (`doubts.py`);
4. where others were sent away for it nobody is for a while, for the pod or for others of its user (`claims.py`).

What is known of a user outlives its pods: who deletes them, and makes them anew, is no better off. A user is as
everybody when all is paid that it owes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.lost.claims import Claims
from aliquot_scheduler.queues.lost.doubts import Doubts, Kept
from aliquot_scheduler.queues.lost.rests import Rests
from aliquot_scheduler.queues.lost.tries import Tries
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.waiter import Waiter


class LostTurns:
    """What came of all turns."""

    def __init__(self, *, hall: Hall) -> None:
        self.rests = Rests(hall=hall)
        self.doubts = Doubts()
        self.tries = Tries(doubts=self.doubts)
        self.claims = Claims()

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
        """It had room for so long; it is gone, or waits by another right, or has lost its turn."""
        again = waiter.uid in self.tries.times
        part = max(waiter.amounts[dim] / max(1, capacity[dim]) for dim in (COMPUTE, MEMORY))
        kept = Kept(amounts=waiter.amounts, part=part, lasted=lasted)
        self.doubts.came_to_nothing(waiter.whose, kept, pod=waiter.pod.key, again=again, now=now)
        self.claims.lost(waiter)

    def bound(self, waiter: Waiter, *, now: float) -> None:
        """It is as everybody, and pays what its user owes."""
        self.gone(waiter.uid, now=now)
        self.doubts.bound(waiter.uid, waiter.whose, waiter.amounts, now=now)
        if waiter.whose not in self.doubts:
            self.claims.trusts(waiter.whose)

    def placed(self, pod: Pod) -> None:
        """It has a node, whoever gave it that."""
        self.rests.forget(pod.metadata.uid)
        self.rests.heard.placed(pod.spec.scheduler_name)

    def gone(self, uid: str, *, now: float) -> None:
        """It needs no turn any more, and holds nothing; its user owes as much as before."""
        self.tries.gone(uid)
        self.doubts.gone(uid, now=now)
        self.claims.gone(uid)
        self.rests.forget(uid)

    def tell_time(self, now: float) -> None:
        """Who has paid is as everybody."""
        for who, has_paid in self.doubts.tell_time(now).items():
            self.tries.forget(who)
            if has_paid:
                self.claims.trusts(who)
        self.claims.tell_time(now)
