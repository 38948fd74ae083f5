"""How long the pods of a controller are left alone once one of them was moved for nobody.

A Job loses what it has done each time, and may have few tries; whatever has it moved may come back with it. So each
time it is left alone for twice as long as the last, from ten minutes to a day; if room was kept for its next pod in
vain, since that came late or not at all, for four hours and more. Once it has run for a day beyond its pause, all is as
it was at first. What is to stand empty is worth no more than one move of a controller in a day.

A leader that begins anew knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

_FIRST = 600.0
_IN_VAIN = 4 * 3_600.0
_DAY = 86_400.0


class _Pause(msgspec.Struct, frozen=True, kw_only=True):
    until: float
    length: float


class Pauses:
    """By controller (UIDs)."""

    def __init__(self) -> None:
        self._of: dict[str, _Pause] = {}

    def tell_time(self, now: float) -> None:
        """Long ago is forgotten."""
        self._of = {owner: pause for owner, pause in self._of.items() if now < pause.until + _DAY}

    def are_left_alone(self, owner: str, *, now: float) -> bool:
        """Whether nobody of this one is to go."""
        pause = self._of.get(owner)
        return pause is not None and now < pause.until

    def moved(self, owners: Iterable[str], *, now: float, for_a_day: bool = False) -> None:
        """Of each of these somebody goes; of several pods at once it is one time."""
        for owner in sorted({*owners}):
            self._lengthen(owner, least=_DAY if for_a_day else _FIRST, now=now)

    def came_in_vain(self, owners: Collection[str], *, now: float) -> None:
        """Nobody has come to the room that was kept for the next pod of these."""
        for owner in sorted(owners):
            self._lengthen(owner, least=_IN_VAIN, now=now)

    def _lengthen(self, owner: str, *, least: float, now: float) -> None:
        before = self._of.get(owner)
        length = min(_DAY, max(least, 2 * before.length if before else 0.0))
        self._of[owner] = _Pause(until=now + length, length=length)
