"""Places that members of running groups have left: whoever comes in such a place takes no more than its group held.

| a place | from | ends when |
|---|---|---|
| is empty | a bound member failed, or is gone, and others of its run stay | such a one is let in; no other stays |
| is tried | somebody was let in for it | bound, or the turn led to nothing: gone; no turn after all: is empty |

So each turn in such a place has cost a pod that was bound before, and one that led to nothing leaves none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aliquot_core.request import PodRequest
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter


class Vacancies:
    """By run of a group, what was asked by those who left; what they were charged with depends on their cards."""

    def __init__(self) -> None:
        self._empty: dict[GangKey, list[PodRequest]] = {}
        # By UID of who was let in and is not bound.
        self._tried: dict[str, tuple[GangKey, PodRequest]] = {}

    def left_by(self, waiter: Waiter) -> None:
        """One that was bound is not there any more, and others of its run stay."""
        if gang := waiter.gang:
            self._empty.setdefault(gang, []).append(waiter.shape.request)

    def begin(self, gang: GangKey) -> None:
        """A run begins: nothing is left of one before it."""
        self._empty.pop(gang, None)

    def taken_by(self, waiter: Waiter) -> None:
        """One is let in."""
        gang, asked = waiter.gang, waiter.shape.request
        if gang and asked in (places := self._empty.get(gang, [])):
            places.remove(asked)
            self._tried[waiter.uid] = gang, asked

    def given_back(self, uid: str) -> None:
        """It had no turn, for nobody could look at it: its place is as empty as before."""
        if tried := self._tried.pop(uid, None):
            gang, asked = tried
            self._empty.setdefault(gang, []).append(asked)

    def settle(self, uid: str) -> None:
        """It is bound, its turn led to nothing, or it is gone."""
        self._tried.pop(uid, None)

    def keep(self, gangs: Collection[GangKey]) -> None:
        """Of other runs than these nobody is let in any more."""
        self._empty = {gang: places for gang, places in self._empty.items() if places and gang in gangs}

    def has_for(self, members: Iterable[Waiter]) -> bool:
        """Whether each of these, who are of one gang, comes in the place of one that its run has lost."""
        if not self._empty:
            return False
        there = list(members)
        left = list(self._empty.get(there[0].gang, ())) if there and there[0].gang else []
        for one in there:
            if one.shape.request not in left:
                return False
            left.remove(one.shape.request)
        return bool(there)
