"""How heads that have lost patience were found when they were looked at last: until they are again, or are none."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from math import inf
from typing import NamedTuple

from aliquot_scheduler.queues.judging.rules import Refusal
from aliquot_scheduler.queues.letting_in.sayings import Mark
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Seconds for which a head that finds no room is not looked at again while no card has room for it, and how many are
# looked at in one sweep though none has: to look at 200 of them took 200 ms, and the nodes that are kept for them stay.
_LOOKED_FOR = 1.0
_MOST_LOOKED_AT = 8


class _Look(NamedTuple):
    """When a head was looked at, and whom what was said then is about."""

    at: float
    said_of: tuple[str, Mark]


class Looks:
    """Of all heads, by the UIDs of their first pods."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}
        self._closing: set[str] = set()
        self._said: dict[tuple[str, Mark], Refusal] = {}

    def due(self, impatient: AbstractSet[str], *, since: Mapping[str, float], now: float) -> set[str]:
        """Of heads that have lost patience those who were not looked at lately, a few at a time, in turns."""
        last = {uid: look.at for uid, look in self._looks.items()}
        due = [uid for uid in impatient if uid not in last or not 0.0 <= now - last[uid] < _LOOKED_FOR]
        return set(sorted(due, key=lambda uid: (last.get(uid, -inf), since[uid], uid))[:_MOST_LOOKED_AT])

    def said_of(self, uid: str) -> Refusal | None:
        """Why one was refused when it was looked at last."""
        look = self._looks.get(uid)
        return self._said.get(look.said_of) if look else None

    def why(self, queue: str, mark: Mark) -> Refusal | None:
        """The same of whoever is refused with one."""
        return self._said.get((queue, mark))

    def closing(self) -> AbstractSet[str]:
        """Those of them who kept quota from who came after, when they were looked at last."""
        return self._closing

    def heads(self) -> AbstractSet[str]:
        """Who was looked at."""
        return self._looks.keys()

    def looked_at(self, one: Candidate, refusal: Refusal, *, now: float, closes: bool, closely: bool = True) -> None:
        """One of them was refused; that is said of it until it is looked at again, `closely` in its turn."""
        before = self._looks.get(one.uid)
        self.forget(one.uid)
        at = now if closely or before is None else before.at
        self._looks[one.uid] = look = _Look(at=at, said_of=(one.first.queue, one.first.mark))
        self._said[look.said_of] = refusal
        if closes:
            self._closing.add(one.uid)

    def forget(self, uid: str) -> None:
        """It is to be looked at, or is no such head any more."""
        self._closing.discard(uid)
        if (look := self._looks.pop(uid, None)) is not None:
            self._said.pop(look.said_of, None)

    def keep(self, impatient: AbstractSet[str]) -> None:
        """Nothing is known any more but of these."""
        for uid in self._looks.keys() - impatient:
            self.forget(uid)

    def clear(self) -> None:
        """Everything has changed."""
        self._looks.clear()
        self._closing.clear()
        self._said.clear()
