"""Which pods of a gang wait, where, and what they say of it: so that a gang that does not start is told why.

Thousands of one gang are asked of every two seconds, so they are counted as they come and go.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot_scheduler.queues.waiting.waiter import GangKey, GroupKey, Waiter


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod of a gang waits, and what it says of the gang: only who agrees in all of it starts together."""

    queue: str
    user: str
    size: int
    minimum: int
    # In a line, or elsewhere.
    stands: bool


class Musters:
    """Of all gangs, how many of their pods wait where."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Counter[Spot]] = {}
        self._where: dict[str, tuple[GroupKey, Spot]] = {}

    def of(self, gang: GangKey) -> Counter[Spot]:
        """How many of one group there are, wherever and however they wait, and whether or not they agree with it."""
        return self._groups.get(gang[:2], Counter())

    def come(self, waiter: Waiter, *, stands: bool = False) -> None:
        """A pod waits; who was counted before is counted as it is now."""
        self.go(waiter.uid)
        if waiter.group is None or waiter.gang is None:
            return
        group = waiter.group
        spot = Spot(queue=waiter.queue, user=waiter.user, size=group.size, minimum=group.minimum, stands=stands)
        named = waiter.gang[:2]
        self._where[waiter.uid] = named, spot
        self._groups.setdefault(named, Counter())[spot] += 1

    def go(self, uid: str) -> None:
        """It does not wait any more."""
        if uid not in self._where:
            return
        named, spot = self._where.pop(uid)
        spots = self._groups[named]
        spots[spot] -= 1
        if not spots[spot]:
            del spots[spot]
        if not spots:
            del self._groups[named]
