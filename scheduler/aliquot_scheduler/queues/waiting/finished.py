"""Who of a group has run to its end: who counts as one that is there though it holds nothing any more.

| it counts | as long as |
|---|---|
| for its run, which goes on without it (`stale.py`) | another of that run is let in; its own pod may be deleted |
| for those whom the same one makes (`runs.py`) | its pod is there: till then a Job makes no other in its place |
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from aliquot_scheduler.queues.waiting.makers import maker_of
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter

# A group with what is said of it and whose it is; and who makes it.
_Made = tuple[tuple[str, str, int, int, str], str]


class Finished:
    """All of them, by UID."""

    def __init__(self) -> None:
        self._of_runs: dict[GangKey, set[str]] = {}
        self._of_makers: dict[_Made, set[str]] = {}
        # Whose pods are there, if anybody makes them.
        self._there: dict[str, _Made] = {}

    def add(self, waiter: Waiter) -> None:
        """One has run to its end."""
        self.gone(waiter.uid)
        if (gang := waiter.gang) is None:
            return
        self._of_runs.setdefault(gang, set()).add(waiter.uid)
        if maker := maker_of(waiter.pod):
            self._there[waiter.uid] = made = gang[:5], maker
            self._of_makers.setdefault(made, set()).add(waiter.uid)

    def gone(self, uid: str) -> None:
        """There is no such pod any more."""
        if (made := self._there.pop(uid, None)) is None:
            return
        self._of_makers[made].discard(uid)
        if not self._of_makers[made]:
            del self._of_makers[made]

    def keep(self, gangs: AbstractSet[GangKey]) -> None:
        """Of other runs than these nobody is let in any more."""
        for gang in self._of_runs.keys() - gangs:
            del self._of_runs[gang]

    def of_run(self, gang: GangKey) -> Collection[str]:
        """Who of a run has."""
        return self._of_runs.get(gang, ())

    def made_alike(self, waiter: Waiter) -> int:
        """How many have whom the one who makes this pod will not make again.

        A Job that makes more pods than the group has begins anew with each that many.
        """
        if not self._of_makers or waiter.group is None or waiter.gang is None:
            return 0
        return len(self._of_makers.get((waiter.gang[:5], maker_of(waiter.pod)), ())) % waiter.group.size
