"""How long the pods of a controller are left alone once one of them was moved for nobody.

A Job loses what it has done each time, and may have few tries; whatever has it moved may come back with it. So who has
come since its controller's pods went off a GPU that fails, and lies on such a one again, is left alone: ten minutes at
first, and each time for twice as long as the last, a day at the most. Who was there before goes when there is room, so
a GPU with a hundred pods of one controller is left batch by batch. If room was kept in vain for the next pod, since
that came late or not at all, that time begins anew, and for all of the controller's. Once it has run for a day beyond
its pause, all is as it was at first.

It is counted by controller, whichever GPU it was: what breaks each GPU that it comes to would else go on for ever. What
is to stand empty is worth no more than one move of a controller in a day.

A leader that begins anew knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

_FIRST = 600.0
_DAY = 86_400.0


class _Pause(msgspec.Struct, frozen=True, kw_only=True):
    until: float
    length: float
    # Who was there when it began (UIDs): these go still.
    there: frozenset[str] = frozenset()


class Pauses:
    """Of those who went off GPUs that fail, by controller (UIDs)."""

    def __init__(self) -> None:
        self._of: dict[str, _Pause] = {}

    def tell_time(self, now: float) -> None:
        """Long ago is forgotten."""
        self._of = {owner: pause for owner, pause in self._of.items() if now < pause.until + _DAY}

    def are_left_alone(self, owner: str, *, now: float) -> bool:
        """Whether any of this one's pods are."""
        pause = self._of.get(owner)
        return pause is not None and now < pause.until

    def is_left_alone(self, uid: str, owner: str, *, now: float) -> bool:
        """Whether this pod of it is not to go."""
        return self.are_left_alone(owner, now=now) and uid not in self._of[owner].there

    def moved(self, owner: str, uids: Collection[str], *, there: Iterable[str], now: float) -> None:
        """These of its pods go, of all that are `there`; of several pods at once it is one time."""
        before = self._of.get(owner)
        if before is not None and before.there.issuperset(uids):
            return
        length = min(_DAY, 2 * before.length if before else _FIRST)
        self._of[owner] = _Pause(until=now + length, length=length, there=frozenset(there))

    def came_in_vain(self, owners: Collection[str], *, now: float) -> None:
        """Nobody has come to the room that was kept for the next pod of these."""
        for owner in owners:
            length = self._of[owner].length if owner in self._of else _FIRST
            self._of[owner] = _Pause(until=now + length, length=length)


class Rested:
    """Of those who went so that something stands empty, by controller (UIDs): for a day each."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def tell_time(self, now: float) -> None:
        """What is over is forgotten."""
        self._until = {owner: until for owner, until in self._until.items() if now < until}

    def is_left_alone(self, owner: str, *, now: float) -> bool:
        """Whether nobody of this one is to go."""
        return now < self._until.get(owner, now)

    def moved(self, owners: Iterable[str], *, now: float) -> None:
        """Of each of these somebody goes."""
        self._until |= dict.fromkeys(owners, now + _DAY)
