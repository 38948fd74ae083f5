"""Who has lost turns, and who of them tries again: few at a time, in turns.

| a pod | from | ends when |
|---|---|---|
| fresh | it has lost no turn, or is bound | a turn of its leads to nothing: rests |
| rests | so long as its pod has to, and then until it may try | it may: tries |
| tries | it stands in line, and is let in when it has room | it is bound; its turn leads to nothing: rests |

Those who have lost turns have at most a quarter of all cards and of all turns that are given at once, or one of them
whatever it asks; the others rest on. Who tries for longer than a minute has no room, and does not count. Of whom nobody
has tried for longest goes first, whatever its priority, then one of each other's. While others wait all who try begin
at one instant, and the next ones two minutes later: the others have three quarters of the time.

What must always hold: nothing that becomes of one user's pods makes another's rest longer, but that they try in turns.
So who has rested tries again after no more than `TRIES` for each user of whom anybody has lost a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from math import inf

from aliquot_scheduler.deciding.turns import MOST_AT_ONCE
from aliquot_scheduler.queues.lost.doubts import Doubts
from aliquot_scheduler.queues.lost.instants import AGAIN, PART, TRIES, at_the_next
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter, of_each_user

# Who has no room for so long keeps nobody from trying.
_NO_ROOM = 60.0


class Tries:
    """Of all who have lost turns."""

    def __init__(self, *, doubts: Doubts) -> None:
        self._doubts = doubts
        # How many turns each has lost that had room (UIDs).
        self.times: dict[str, int] = {}
        # Whose each is, and who of a user's they are.
        self._whose: dict[str, Whose] = {}
        self._losers: dict[Whose, set[str]] = {}
        # Since when each tries; when one of a user's has tried last, or else the first of them was lost.
        self._joined: dict[str, float] = {}
        self._tried: dict[Whose, float] = {}
        # When the next may begin, while others wait.
        self._next = -inf

    # --- events ------------------------------------------------------------------------------------------------------
    def lost(self, uid: str, who: Whose, *, now: float) -> None:
        """A turn of its has led to nothing."""
        self.times[uid] = self.times.get(uid, 0) + 1
        self._belongs(uid, who, now=now)

    def gone(self, uid: str) -> None:
        """It needs no turn any more."""
        self.times.pop(uid, None)
        self._joined.pop(uid, None)
        if who := self._whose.pop(uid, None):
            self._leaves(uid, who)

    def forget(self, who: Whose) -> None:
        """Of whom nobody has lost a turn, and who owes nothing, nothing need be known."""
        if who not in self._losers and who not in self._doubts:
            self._tried.pop(who, None)

    # --- questions ---------------------------------------------------------------------------------------------------
    def trying(self, standing: Iterable[Waiter], coming: Iterable[Waiter], *, now: float) -> list[Waiter]:
        """Of these the ones that have lost turns and try again: under way, or in a line where they may find room."""
        return [one for one in (*standing, *coming) if now - self._joined.get(one.uid, -inf) < _NO_ROOM]

    def again(
        self,
        rested: Iterable[Waiter],
        trying: Iterable[Waiter],
        *,
        others_wait: bool,
        capacity: Sequence[int],
        now: float,
    ) -> list[Waiter]:
        """Who tries beside those, of these that have lost turns; the others rest on (`rest_on_until`)."""
        beside, found = _Beside(trying, capacity=capacity), list[Waiter]()
        closed = others_wait and now < self._next
        for waiter in self._in_turn(rested):
            # A gang starts as a whole, so it tries as a whole.
            if (mate := beside.mate(waiter)) is not None:
                self._tries(waiter, since=self._joined[mate.uid])
            elif not closed and beside.has_place(waiter):
                self._tries(waiter, since=now)
                self._tried[waiter.whose], self._next = now, at_the_next(now + TRIES)
            else:
                # Where others begin at any time, who asks for much would be overtaken again and again.
                closed = closed or not others_wait
                continue
            beside.add(waiter)
            found.append(waiter)
        return found

    def rest_on_until(self, *, others_wait: bool, now: float) -> float:
        """When it is asked again who tries."""
        soon = at_the_next(now + AGAIN)
        return max(soon, self._next) if others_wait else soon

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _tries(self, waiter: Waiter, *, since: float) -> None:
        self._joined[waiter.uid] = since
        # It may wait in another queue by now than where it was lost.
        self._belongs(waiter.uid, waiter.whose, now=since)

    def _in_turn(self, rested: Iterable[Waiter]) -> Iterator[Waiter]:
        """One of each user's after the other, again and again; who has tried longest ago goes first."""
        rows = of_each_user(rested)
        users = sorted(rows, key=lambda who: (self._since(who, rows[who]), who))
        for turn in zip_longest(*(rows[who] for who in users)):
            yield from filter(None, turn)

    def _since(self, who: Whose, waiters: Iterable[Waiter]) -> float:
        """Since when a user's pods have not tried; of those who came from another queue, since they did there."""
        known = (who, *(self._whose[one.uid] for one in waiters))
        return next(self._tried[one] for one in known if one in self._tried)

    def _belongs(self, uid: str, who: Whose, *, now: float) -> None:
        before = self._whose.get(uid)
        self._whose[uid] = who
        self._losers.setdefault(who, set()).add(uid)
        self._tried.setdefault(who, now)
        if before not in (None, who):
            self._leaves(uid, before)

    def _leaves(self, uid: str, who: Whose) -> None:
        self._losers[who].remove(uid)
        if not self._losers[who]:
            del self._losers[who]
        self.forget(who)


class _Beside:
    """All who try at once: how many they are, what they ask together, and one of each gang."""

    def __init__(self, trying: Iterable[Waiter], *, capacity: Sequence[int]) -> None:
        self._capacity = capacity
        self._count, self._asked = 0, [0, 0]
        self._gangs: dict[GangKey, Waiter] = {}
        for one in trying:
            self.add(one)

    def add(self, waiter: Waiter) -> None:
        """One tries."""
        self._count += 1
        for dim in (COMPUTE, MEMORY):
            self._asked[dim] += waiter.amounts[dim]
        if gang := waiter.gang:
            self._gangs.setdefault(gang, waiter)

    def mate(self, waiter: Waiter) -> Waiter | None:
        """The first of its gang who tries."""
        return self._gangs.get(waiter.gang) if waiter.gang else None

    def has_place(self, waiter: Waiter) -> bool:
        """Whether it may too: one alone may whatever it asks."""
        if not self._count:
            return True
        if self._count >= MOST_AT_ONCE // PART:
            return False
        asked = (waiter.amounts[dim] + self._asked[dim] for dim in (COMPUTE, MEMORY))
        return all(PART * amount <= self._capacity[dim] for dim, amount in enumerate(asked))
