"""Gangs that can't go on: fewer of them are in than have to run together, and the others can't follow.

A member may lose its turn (its CPU is nowhere free), or fail while others run. Those that are in hold their cards for
nothing meanwhile, and two such gangs may hold what the other lacks. So after a while all of them are sent back, and the
gang waits as a whole. Whoever has lost nobody is left alone: of a gang that one member has finished, or whose members
were deleted before we led, nothing says that it can't go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter


class StaleGangs:
    """Which gangs lack members, and since when."""

    def __init__(self, *, after: float, runs: Runs) -> None:
        self._after = after
        self._runs = runs
        self._since: dict[GangKey, float] = {}
        self._done: dict[GangKey, set[str]] = {}
        self._lost_one: set[GangKey] = set()
        # Of those some that may be evicted.
        self._mixed: set[GangKey] = set()

    def done(self, waiter: Waiter) -> None:
        """One of a gang has run to its end: it counts as one that is there."""
        if gang := waiter.gang:
            self._done.setdefault(gang, set()).add(waiter.uid)

    def lost(self, waiter: Waiter) -> None:
        """One of a gang that was bound is gone, or has failed."""
        if (gang := waiter.gang) and waiter.uid not in self._done.get(gang, ()):
            self._lost_one.add(gang)
            if not waiter.shape.firm:
                self._mixed.add(gang)

    def due(
        self,
        *,
        let_in: Mapping[GangKey, Iterable[str]],
        bound: Mapping[str, Waiter],
        waiting: Iterable[Waiter],
        now: float,
    ) -> list[Pod]:
        """Who is to be sent back: all bound members of gangs that have lacked others for too long."""
        gangs = {gang: sorted(uids) for gang, uids in let_in.items()}
        lacking = {gang for gang, uids in gangs.items() if self._lacks(gang, uids, bound)}
        # Seldom anybody lacks, and thousands may wait.
        waiting = [self._runs.sorted_in(waiter) for waiter in waiting if waiter.group] if lacking else []
        if lacking:
            lacking &= self._lost_one | {waiter.gang for waiter in waiting}
        for gang in lacking - self._since.keys():
            self._since[gang] = now
        for gang in self._since.keys() - lacking:
            del self._since[gang]
        self._forget(gangs.keys(), lacking)
        late = sorted(gang for gang, since in self._since.items() if now - since >= self._after)
        if not late:
            return []
        members = [(gang, bound[uid]) for gang in late for uid in gangs[gang] if uid in bound]
        # Whom others had to leave for, and who is never evicted, waits for them where it is.
        mixed = self._mixed | {gang for gang in map(_yielding, (*waiting, *bound.values())) if gang}
        sent_back = [one.pod for gang, one in members if gang not in mixed or not one.shape.firm]
        return [pod for pod in sent_back if not pod.metadata.deletion_timestamp]

    def _lacks(self, gang: GangKey, uids: Iterable[str], bound: Mapping[str, Waiter]) -> bool:
        there = list(uids)
        groups = [bound[uid].group for uid in there if uid in bound]
        least = max((group.minimum for group in groups if group), default=0)
        return len(there) + len(self._done.get(gang, ())) < least

    def _forget(self, there: Iterable[GangKey], lacking: set[GangKey]) -> None:
        known = set(there)
        self._lost_one &= lacking
        self._mixed &= lacking
        for gang in self._done.keys() - known:
            del self._done[gang]


def _yielding(waiter: Waiter) -> GangKey | None:
    """The gang of one that may be evicted."""
    return None if waiter.shape.firm else waiter.gang
