"""Pods whose turns led to nothing: few of them try again at a time, and their users' other pods come one by one.

| a pod | from | ends when |
|---|---|---|
| fresh | it has lost no turn, or is bound | a turn of its leads to nothing: rests |
| rests | so long as its pod has to, and then until it may try | it may: tries |
| tries | it stands in line, and is let in when it has room | it is bound; its turn leads to nothing: rests |

| a user in a queue | from | ends when |
|---|---|---|
| in doubt | a pod of theirs has lost a turn | a pod of theirs is bound there; they have lost none for an hour |
| paused | they have lost one: for so long as rule 4 says | that is over, or they are in doubt no more |

A turn keeps room for half a minute. Of pods that nobody can bind each new turn is lost again, so in a cluster that is
idle but for them others would find no room for as long as there are such pods. So

1. who has lost a turn stands behind its user's pods that have lost fewer (`line.py`);
2. those who have lost turns have at most a quarter of all cards and of all turns that are given at once, or one of them
   whatever it asks; the others rest on. Who tries for longer than a minute has no room, and does not count;
3. they try in turns: of whom nobody has tried for longest goes first, whatever its priority, then one of each other's.
   While others wait all who try begin at one instant, and the next ones two minutes later: the others have three
   quarters of the time;
4. a user who has lost a turn is in doubt in that queue until a pod of it is bound there, or for an hour: as long, its
   pods that have lost none come in one by one; and while others wait none does for three turns after the end of a turn
   that was given in doubt, nor for five seconds after that of another: others have what that leaves. Not where the
   queue is guaranteed anything: what is held back there is of use to nobody else.

What must always hold: nothing that becomes of one user's pods makes another's rest longer, but that they try in turns.
So who has rested tries again after no more than `TRIES` for each user of whom anybody has lost a turn. What is known of
a user outlives its pods: who deletes them, and makes them anew, is no better off.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import zip_longest
from math import ceil, inf

import msgspec

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.deciding.turns import MOST_AT_ONCE
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Waiter, of_each_user

PART = 4
PAUSE = (PART - 1) * PROMISE
# At such instants alone it is decided who tries: of those who rest for different times nobody slips in between.
_AGAIN = 5.0
# Who has no room for so long keeps nobody from trying.
_NO_ROOM = 60.0
# From when some begin to when the next do, while others wait.
TRIES = PART * PROMISE
FADES = 3600.0


class _Doubt(msgspec.Struct, kw_only=True):
    """Of a user in a queue: since when, when a turn was lost last, and until when no other pod of it comes."""

    since: float
    last: float
    until: float


class LostTurns:
    """Who has lost turns, and who is in doubt for that."""

    def __init__(self) -> None:
        # How many turns each has lost that had room (UIDs).
        self.times: dict[str, int] = {}
        # Whose each is, and who of a user's they are.
        self._whose: dict[str, Whose] = {}
        self._losers: dict[Whose, set[str]] = {}
        # Since when each tries; when one of a user's has tried last, or else the first of them was lost.
        self._joined: dict[str, float] = {}
        self._tried: dict[Whose, float] = {}
        self._doubts: dict[Whose, _Doubt] = {}
        # When the next may begin, while others wait.
        self._next = -inf

    def __contains__(self, uid: str) -> bool:
        return uid in self.times

    # --- events ------------------------------------------------------------------------------------------------------
    def lost(self, waiter: Waiter, *, now: float) -> None:
        """A turn of its has led to nothing."""
        uid, who = waiter.uid, whose(waiter)
        self.times[uid] = self.times.get(uid, 0) + 1
        doubt = self._doubts.setdefault(who, _Doubt(since=now, last=now, until=now))
        again = self.times[uid] > 1 or now - doubt.since >= PROMISE
        doubt.last, doubt.until = now, max(doubt.until, at_the_next(now + (PAUSE if again else _AGAIN)))
        self._belongs(uid, who, now=now)

    def bound(self, waiter: Waiter) -> None:
        """It is as everybody, and its user is in doubt no more."""
        self._doubts.pop(whose(waiter), None)
        self.gone(waiter.uid)
        self._forget(whose(waiter))

    def gone(self, uid: str) -> None:
        """A pod needs no turn any more; its user is in doubt as before."""
        self.times.pop(uid, None)
        self._joined.pop(uid, None)
        if who := self._whose.pop(uid, None):
            self._leaves(uid, who)

    def tell_time(self, now: float) -> None:
        """Who has lost no turn for an hour is in doubt no more."""
        for who in [who for who, doubt in self._doubts.items() if now - doubt.last >= FADES]:
            del self._doubts[who]
            self._forget(who)

    # --- questions ---------------------------------------------------------------------------------------------------
    def in_doubt(self, who: Whose) -> bool:
        """Whether a user's pods come one by one."""
        return who in self._doubts

    @property
    def anybody_in_doubt(self) -> bool:
        """Whether that is so of any."""
        return bool(self._doubts)

    def closed(
        self, queue: str, users: Iterable[str], *, coming: Container[Whose], others_wait: bool, now: float
    ) -> set[str]:
        """The users of a queue of whom nobody comes who has lost no turn; of those `coming` one is under way."""
        doubts = ((user, self._doubts.get((queue, user))) for user in users)
        return {
            user for user, doubt in doubts if doubt and ((queue, user) in coming or (others_wait and now < doubt.until))
        }

    def trying(self, standing: Iterable[Waiter], coming: Iterable[Waiter], *, now: float) -> list[Waiter]:
        """Of these the ones that have lost turns and try again: under way, or in a line where they may find room."""
        return [one for one in (*standing, *coming) if now - self._joined.get(one.uid, -inf) < _NO_ROOM]

    def try_again(
        self,
        rested: Iterable[Waiter],
        trying: Iterable[Waiter],
        *,
        others_wait: bool,
        capacity: Sequence[int],
        now: float,
    ) -> list[Waiter]:
        """Who tries beside those, of these that have lost turns; the others rest on (`rest_on_until`)."""
        beside, found = list(trying), list[Waiter]()
        closed = others_wait and now < self._next
        for waiter in self._in_turn(rested):
            # A gang starts as a whole, so it tries as a whole.
            if mate := next((one for one in beside if waiter.gang and one.gang == waiter.gang), None):
                self._tries(waiter, since=self._joined[mate.uid])
            elif not closed and _has_place(waiter, beside, capacity):
                self._tries(waiter, since=now)
                self._tried[whose(waiter)], self._next = now, at_the_next(now + TRIES)
            else:
                # Where others begin at any time, who asks for much would be overtaken again and again.
                closed = closed or not others_wait
                continue
            beside.append(waiter)
            found.append(waiter)
        return found

    def rest_on_until(self, *, others_wait: bool, now: float) -> float:
        """When it is asked again who tries."""
        soon = at_the_next(now + _AGAIN)
        return max(soon, self._next) if others_wait else soon

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _tries(self, waiter: Waiter, *, since: float) -> None:
        self._joined[waiter.uid] = since
        # It may wait in another queue by now than where it was lost.
        self._belongs(waiter.uid, whose(waiter), now=since)

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
        self._forget(who)

    def _forget(self, who: Whose) -> None:
        """Of whom nobody has lost a turn, and who is not in doubt, nothing need be known."""
        if who not in self._losers and who not in self._doubts:
            self._tried.pop(who, None)


def whose(waiter: Waiter) -> Whose:
    """Its queue and user."""
    return waiter.queue, waiter.user


def at_the_next(at: float) -> float:
    """The next instant at which it is decided who tries."""
    return ceil(at / _AGAIN) * _AGAIN


def _has_place(waiter: Waiter, trying: Sequence[Waiter], capacity: Sequence[int]) -> bool:
    if not trying:
        return True
    if len(trying) >= MOST_AT_ONCE // PART:
        return False
    return all(
        PART * (waiter.amounts[dim] + sum(one.amounts[dim] for one in trying)) <= capacity[dim]
        for dim in (COMPUTE, MEMORY)
    )
