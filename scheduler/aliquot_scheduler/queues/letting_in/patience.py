"""Since when heads of lines are passed over, and who of them has lost patience by that."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from math import inf

from aliquot_scheduler.queues.judging.stayers import MOST_DOUBLINGS
from aliquot_scheduler.queues.waiting.waiter import Candidate


class Patience:
    """Of each head since when it is one, by the UID of its first pod; until it is let in or gone."""

    def __init__(self, *, patience: float, hold: float) -> None:
        self._patience = patience
        self.hold = hold
        self.since: dict[str, float] = {}
        # For whom it stands still, since when: they may not come in for a while, whatever there is room for.
        self._still: dict[str, float] = {}
        # Who does not come in before others that ask the same, and leaves it to them.
        self._behind: AbstractSet[str] = frozenset()
        # Who has lost it at this instant, whoever stands before them, until they change.
        self._impatient_now: tuple[float, set[str]] | None = None

    def begin(self, uid: str, *, now: float) -> bool:
        """It is passed over; whether it is for the first time."""
        if uid in self.since:
            return False
        self.since[uid] = now
        self._impatient_now = None
        return True

    def forget(self, uid: str) -> None:
        """It is a head no more."""
        self._still.pop(uid, None)
        if self.since.pop(uid, None) is not None:
            self._impatient_now = None

    def hand_on(self, uid: str, *, to: str) -> None:
        """It goes, and its group waits on: from now on that one has waited as long."""
        if (waits := self.since.get(uid, inf)) >= self.since.get(to, inf):
            return
        self.since[to] = waits
        if uid in self._still:
            self._still[to] = self._still[uid]
        self._impatient_now = None

    def stand_still(self, uids: AbstractSet[str], *, now: float) -> None:
        """For these heads, and for no others, until this is told again: the time in between counts for nobody."""
        if uids == self._still.keys():
            return
        for uid in [uid for uid in self._still if uid not in uids]:
            self.since[uid] += now - self._still.pop(uid)
        for uid in uids:
            self._still.setdefault(uid, now)
        self._impatient_now = None

    def wait_as_long(self, firsts: Mapping[str, Candidate | None]) -> bool:
        """Who comes in before a head that asks the same is passed over since that one was; whether that is new."""
        changes, since = False, self.since
        for uid, first in firsts.items():
            if first is not None and (waits := since[uid]) < since.get(first.uid, inf):
                since[first.uid], changes = waits, True
        if changes:
            self._impatient_now = None
        return changes

    def stand_behind(self, uids: AbstractSet[str]) -> None:
        """These heads hold nobody up, and no others, until this is told again; their time goes on."""
        self._behind = uids

    def stand_first(self, uid: str) -> None:
        """Nobody comes in before this one any more."""
        self._behind = self._behind - {uid}

    def impatient(self, *, now: float) -> AbstractSet[str]:
        """The heads that were passed long enough, unless they have held others up for too long."""
        anywhere = self.impatient_anywhere(now=now)
        return anywhere - self._behind if self._behind else anywhere

    def impatient_anywhere(self, *, now: float) -> AbstractSet[str]:
        """The same, whether or not others that ask the same come in before them."""
        if self._impatient_now is None or self._impatient_now[0] != now:
            self._impatient_now = now, {uid for uid in self.since if self.is_impatient(uid, now=now)}
        return self._impatient_now[1]

    def is_impatient(self, uid: str, *, now: float, beyond: bool = False) -> bool:
        """Whether a head is; `beyond` its share it never holds others up for longer than heads may as it comes."""
        since = self.since.get(uid)
        if since is None or uid in self._still or not self.hold or now - since < self._patience:
            return False
        # The time in which all may pass grows too: whatever it is that keeps it out must not stop a cluster.
        times = 1 if beyond else 2 ** self.doublings(uid, now=now)
        return now % (times * (self._patience + self.hold)) >= times * self._patience

    def doublings(self, uid: str, *, now: float) -> int:
        """How often the time has doubled for which a head may hold others up: it has waited for so long itself."""
        waited, number = now - self.since.get(uid, now), 0
        while self.hold and number < MOST_DOUBLINGS and waited >= self.hold * 2 ** (number + 1):
            number += 1
        return number
