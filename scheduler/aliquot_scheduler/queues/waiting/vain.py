"""Groups that find no place though as much is free as they ask: how long their guarantee is held back all the same.

What is free lies in pieces then, and what is held back of it serves nobody. So such a group demands its guarantee for
the time of patience from when that is found, then for that time and the one for which heads may hold others up it
demands nothing, and so on in turns until it is in. It stands in line all the while.
"""

from __future__ import annotations

from collections.abc import Collection

from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter


class InVain:
    """Since when each was looked for in vain."""

    def __init__(self, *, patience: float, hold: float) -> None:
        self._patience = patience
        self._ends = 2 * patience + hold
        self._since: dict[GangKey, float] = {}
        self._quiet: set[GangKey] = set()

    def found(self, gangs: Collection[GangKey], *, now: float) -> None:
        """Of all that ask, there is no place for these, though enough is free in sum."""
        self._since = {gang: since for gang, since in self._since.items() if gang in gangs or gang in self._quiet}
        for gang in gangs:
            self._since.setdefault(gang, now)

    def is_quiet(self, waiter: Waiter) -> bool:
        """Whether its group demands nothing now."""
        return waiter.gang in self._quiet

    def tell_time(self, now: float) -> list[GangKey]:
        """It is so late: each group that demands nothing from now on, or demands again."""
        # A clock that jumps back ends it, too.
        over = {gang for gang, since in self._since.items() if not 0.0 <= now - since < self._ends}
        quiet = {gang for gang, since in self._since.items() if now - since >= self._patience} - over
        changed = sorted(quiet ^ self._quiet)
        for gang in over:
            del self._since[gang]
        self._quiet = quiet
        return changed

    def forget(self, gang: GangKey) -> None:
        """Another number of it is in."""
        self._since.pop(gang, None)
        self._quiet.discard(gang)

    def clear(self) -> None:
        """There is other hardware, or other queues."""
        self._since.clear()
        self._quiet.clear()
