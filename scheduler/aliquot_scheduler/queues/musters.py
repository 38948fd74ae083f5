"""Which pods of a gang wait, where, and what they say of it: so that a gang that does not start is told why.

Thousands of one gang are asked of every two seconds, so they are counted as they come and go.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot_scheduler.queues.line import GangKey, Waiter


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod of a gang waits, and what it says of the gang: only who agrees in all of it starts together."""

    queue: str
    user: str
    size: int
    minimum: int


class Musters:
    """Of all gangs, how many of their pods wait where."""

    def __init__(self) -> None:
        self._gangs: dict[GangKey, Counter[Spot]] = {}
        self._where: dict[str, tuple[GangKey, Spot]] = {}

    def of(self, gang: GangKey) -> Counter[Spot]:
        """How many of one gang there are, wherever and however they wait."""
        return self._gangs.get(gang, Counter())

    def come(self, waiter: Waiter) -> None:
        """A pod waits; who was counted before is counted as it is now."""
        self.go(waiter.uid)
        if waiter.group is None or waiter.gang is None:
            return
        group = waiter.group
        spot = Spot(queue=waiter.queue, user=waiter.user, size=group.size, minimum=group.minimum)
        self._where[waiter.uid] = waiter.gang, spot
        self._gangs.setdefault(waiter.gang, Counter())[spot] += 1

    def go(self, uid: str) -> None:
        """It does not wait any more."""
        if uid not in self._where:
            return
        gang, spot = self._where.pop(uid)
        spots = self._gangs[gang]
        spots[spot] -= 1
        if not spots[spot]:
            del spots[spot]
        if not spots:
            del self._gangs[gang]
