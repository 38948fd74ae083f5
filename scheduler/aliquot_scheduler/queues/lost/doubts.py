"""Users of whom turns led to nothing: their other pods come one by one, until as much was used as was kept for nothing.

| a user in a queue | from | ends when |
|---|---|---|
| owes | a turn of theirs led to nothing, however it ended | it is paid; none has for an hour |
| in doubt | such turns have lasted for `PROMISE` together | they owe nothing any more |
| paused | one more has, of a pod that had lost none | nobody came for three times as long as it lasted |

What a turn kept is owed: compute and memory each, times the seconds that it lasted. It is paid by pods of that user
that were bound there since, by what they hold and for as long as they do. So a little pod among bad ones pays little,
and who deletes a pod just before its turn is over owes as much as if it were lost. What was deleted at once, as
controllers do it, owes next to nothing, and begins no doubt unless there is much of it.

Users are many, if one likes. So all those together of whom a turn that was given in doubt has led to nothing keep a
quarter of all cards' time for nothing, while others wait who are not in doubt: after each such turn they wait until
four times what it kept, as part of all there is, is over.

What must always hold: what becomes of others' pods is nothing to a user of whom no second turn has led to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import msgspec

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.lost.instants import AGAIN, PART, at_the_next
from aliquot_scheduler.queues.waiting.users import Whose

FADES = 3600.0
_KINDS = 2


class Kept(NamedTuple):
    """What a turn has kept for nothing: compute and memory, which part of all there is that was, and for how long."""

    amounts: Sequence[int]
    part: float
    lasted: float


class Debt(NamedTuple):
    """Of a user in doubt: what is owed, of compute and memory in each second; and for how long at most."""

    owes: Sequence[float]
    # Whose turn was the last that led to nothing (`namespace/name`), and when it did.
    pod: str
    last: float
    # Until when nobody comes, if others wait who could use what that one would take.
    pauses: float
    # Until when at most, if no other turn of theirs leads to nothing.
    ends: float


class _Doubt(msgspec.Struct, kw_only=True):
    """Of a user in a queue."""

    # Since when it is in doubt, and whether a turn has led to nothing that was given in it.
    since: float | None = None
    again: bool = False
    # When a turn led to nothing last, of which pod, and until when no other pod comes.
    last: float
    pod: str = ""
    until: float
    # How long such turns lasted, together.
    lasted: float = 0.0
    # What is owed as of then, and what its pods hold that were bound since: compute and memory.
    owes: list[float]
    at: float
    holds: list[int]


class Doubts:
    """All that is owed."""

    def __init__(self) -> None:
        self._doubts: dict[Whose, _Doubt] = {}
        # By pod (UID): whose debt it pays off, and what it holds.
        self._paying: dict[str, tuple[Whose, Sequence[int]]] = {}
        # Until when no pod comes of anybody of whom a turn that was given in doubt has led to nothing.
        self._all_until = -inf

    def __bool__(self) -> bool:
        """Whether anybody is in doubt, or on the way to it."""
        return bool(self._doubts)

    def __contains__(self, who: Whose) -> bool:
        doubt = self._doubts.get(who)
        return doubt is not None and doubt.since is not None

    # --- events ------------------------------------------------------------------------------------------------------
    def came_to_nothing(self, who: Whose, kept: Kept, *, pod: str, again: bool, now: float) -> None:
        """A turn of theirs did that kept so much; `again`: the pod has lost one before."""
        doubt = self._doubts.setdefault(
            who, _Doubt(last=now, until=now, owes=[0.0] * _KINDS, at=now, holds=[0] * _KINDS)
        )
        _settle(doubt, now=now)
        for kind in range(_KINDS):
            doubt.owes[kind] += kept.amounts[kind] * kept.lasted
        doubt.last, doubt.pod, doubt.lasted = now, pod, doubt.lasted + kept.lasted
        if doubt.since is None and doubt.lasted < PROMISE:
            return
        began = now - kept.lasted
        # Those that try again have bounds of their own (`tries.py`): else they made the user's others pause for ever.
        in_doubt = doubt.since is not None and began >= doubt.since and not again
        doubt.since = now if doubt.since is None else doubt.since
        pause = (PART - 1) * kept.lasted if in_doubt else AGAIN
        doubt.until = max(doubt.until, at_the_next(now + pause))
        if in_doubt:
            doubt.again = True
            self._all_until = max(self._all_until, began) + PART * kept.part * kept.lasted

    def bound(self, uid: str, who: Whose, amounts: Sequence[int], *, now: float) -> None:
        """A pod of theirs pays from now on, if they owe anything."""
        if (doubt := self._doubts.get(who)) is not None:
            _settle(doubt, now=now)
            self._paying[uid] = who, amounts
            _holds(doubt, amounts, sign=+1)

    def gone(self, uid: str, *, now: float) -> None:
        """It pays no more."""
        if (paying := self._paying.pop(uid, None)) and (doubt := self._doubts.get(paying[0])):
            _settle(doubt, now=now)
            _holds(doubt, paying[1], sign=-1)

    def tell_time(self, now: float) -> dict[Whose, bool]:
        """Who owes nothing any more is forgotten, and who has lost nothing for an hour; and whether they have paid."""
        over: dict[Whose, bool] = {}
        for who, doubt in self._doubts.items():
            if any(doubt.holds):
                # What nobody pays for stays as it was, of hundreds.
                _settle(doubt, now=now)
            has_paid = max(doubt.owes) <= 0.0
            if has_paid or now - doubt.last >= FADES:
                over[who] = has_paid
        for who in over:
            del self._doubts[who]
        if over:
            self._paying = {uid: paying for uid, paying in self._paying.items() if paying[0] in self._doubts}
        return over

    # --- questions ---------------------------------------------------------------------------------------------------
    def doubted(self) -> list[Whose]:
        """All who are in doubt."""
        return [who for who, doubt in self._doubts.items() if doubt.since is not None]

    def pauses(self, who: Whose, *, now: float) -> bool:
        """Whether nobody of a user in doubt comes now, if others wait."""
        return now < self._paused_until(self._doubts[who])

    def debt(self, who: Whose, *, now: float) -> Debt:
        """What a user in doubt is told."""
        doubt = self._doubts[who]
        _settle(doubt, now=now)
        pauses, ends = self._paused_until(doubt), doubt.last + FADES
        return Debt(owes=tuple(doubt.owes), pod=doubt.pod, last=doubt.last, pauses=pauses, ends=ends)

    def _paused_until(self, doubt: _Doubt) -> float:
        return max(doubt.until, at_the_next(self._all_until) if doubt.again else -inf)


def _settle(doubt: _Doubt, *, now: float) -> None:
    paid_for = max(0.0, now - doubt.at)
    for kind, held in enumerate(doubt.holds):
        doubt.owes[kind] = max(0.0, doubt.owes[kind] - held * paid_for)
    doubt.at = max(now, doubt.at)


def _holds(doubt: _Doubt, amounts: Sequence[int], *, sign: int) -> None:
    for kind in range(_KINDS):
        doubt.holds[kind] += sign * amounts[kind]
