"""Whoever is sent away stands in line again: what those will ask who are supposed to go.

A controller makes their pods anew, and what these ask their queue may be guaranteed. So a candidate is judged beside
them, else it may be refused for their sake once they have gone, and its turn never comes while they go to and fro. Who
only borrowed demands nothing of a guarantee, and changes nothing.

What must always hold: a gang asks as it will stand in line, what it needs to start at once and the others one by one;
all that was asked here is taken back (`end`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.waiting.waiter import GangKey
from aliquot_scheduler.reclaim.residents import Resident

# A gang, or the UID of a pod that is in none.
_Key = GangKey | str


class Again:
    """What is asked in the ledger for all who go."""

    def __init__(self, *, ledger: Ledger, gangs: Mapping[GangKey, Collection[str]]) -> None:
        """`gangs` is everybody of each gang who is in."""
        self._ledger = ledger
        self._gangs = gangs
        self._gone: dict[_Key, dict[str, Resident]] = {}
        self._asked: dict[_Key, list[tuple[str, Ask]]] = {}
        # Asked anew only when it matters: of a gang of 1,000 one after the other goes.
        self._changed: set[_Key] = set()

    def goes(self, one: Resident) -> None:
        """It is sent away, and comes again."""
        # No guarantee can be demanded there.
        if self._ledger.guaranteed(one.queue):
            key = one.waiter.gang or one.uid
            self._gone.setdefault(key, {})[one.uid] = one
            self._changed.add(key)

    def stays(self, one: Resident) -> None:
        """It is not."""
        key = one.waiter.gang or one.uid
        if self._gone.get(key, {}).pop(one.uid, None) is not None:
            self._changed.add(key)

    def settle(self) -> None:
        """Let the ledger know what has changed."""
        for key in self._changed:
            self._take_back(key)
            for queue, ask in self._asks(key):
                self._ledger.ask(queue, ask)
                self._asked.setdefault(key, []).append((queue, ask))
        self._changed.clear()

    def end(self) -> None:
        """Nobody asks again any more."""
        for key in list(self._asked):
            self._take_back(key)
        self._gone.clear()
        self._changed.clear()

    def _take_back(self, key: _Key) -> None:
        for queue, ask in self._asked.pop(key, ()):
            self._ledger.ask_no_more(queue, ask)

    def _asks(self, key: _Key) -> list[tuple[str, Ask]]:
        """What they ask at once."""
        gone = [one for _, one in sorted(self._gone[key].items())]
        at_once = self._needed(gone)
        portions = [gone[:at_once], *([one] for one in gone[at_once:])]
        return [(some[0].queue, _asked_by(some)) for some in portions if some]

    def _needed(self, gone: list[Resident]) -> int:
        """How many of them start together; whoever is to spare comes alone."""
        waiter = gone[0].waiter if gone else None
        if waiter is None or waiter.gang is None or waiter.group is None:
            return 0
        left = set(self._gangs.get(waiter.gang, ())) - {one.uid for one in gone}
        return max(0, waiter.group.minimum - len(left))


def _asked_by(some: list[Resident]) -> Ask:
    """As much as they have now."""
    least = [tuple(map(min, one.amounts, one.waiter.least)) for one in some]
    amounts, least_of_all = (
        tuple(sum(column) for column in zip(*each, strict=True)) for each in ([one.amounts for one in some], least)
    )
    return Ask(amounts=amounts, least=least_of_all)
