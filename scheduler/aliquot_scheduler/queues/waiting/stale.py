"""Gangs that can't go on: fewer of them are in than have to run together, and the others can't follow.

A member may lose its turn (its CPU is nowhere free), or fail while others run. Those that are in hold their cards for
nothing meanwhile, and two such gangs may hold what the other lacks. So after a while all of them are sent back, and the
gang waits as a whole; at once where others have the room of some of them by now. So are some of a run that is torn
between makers (`torn.py`). While lost turns of others are why nobody comes, a gang has time. Whoever has lost nobody
is left alone: of a gang that one member has finished, or whose
members were deleted before we led and not for others, nothing says that it can't go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf

from aliquot_core.objects import Pod
from aliquot_scheduler.queues.waiting.makers import maker_of
from aliquot_scheduler.queues.waiting.musters import Musters
from aliquot_scheduler.queues.waiting.runs import Runs
from aliquot_scheduler.queues.waiting.torn import of_several, who_gives_way
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter


class StaleGangs:
    """Which gangs lack members, and since when."""

    def __init__(self, *, after: float, runs: Runs, musters: Musters) -> None:
        self._after = after
        self._musters = musters
        self._runs = runs
        self._since: dict[GangKey, float] = {}
        # When that was looked at last.
        self._looked = -inf
        self._lost_one: set[GangKey] = set()
        # Some of them went for others, who are in by now; until when that is why they lack somebody.
        self._broken: dict[GangKey, float] = {}
        # Of those some that may be evicted.
        self._mixed: set[GangKey] = set()

    def lost(self, waiter: Waiter) -> None:
        """One of a gang that was bound is gone, or has failed."""
        if (gang := waiter.gang) and waiter.uid not in self._runs.finished.of_run(gang):
            self._lost_one.add(gang)
            self._runs.has_lost(waiter)
            if not waiter.shape.firm:
                self._mixed.add(gang)

    def lost_before(self, gangs: Iterable[GangKey]) -> None:
        """Of these some went by the word of the leader before us: where too few are left, that is known."""
        self._lost_one |= set(gangs)

    def is_short(self, gang: GangKey) -> bool:
        """Whether it lacks whom it has lost, as far as was looked by now."""
        return gang in self._lost_one or gang in self._broken

    def hurry(self, gangs: Iterable[GangKey], *, until: float) -> None:
        """Others have the room of some of these: where too few are left, nobody waits for those to come back."""
        self._broken |= dict.fromkeys(gangs, until)

    def due(
        self,
        *,
        let_in: Mapping[GangKey, Iterable[str]],
        bound: Mapping[str, Waiter],
        waiting: Iterable[Waiter],
        is_kept_waiting: Callable[[Waiter], bool],
        now: float,
    ) -> list[Pod]:
        """Who is to be sent back: the bound members of gangs that have lacked others, or are torn, for too long.

        `is_kept_waiting` says of one that waits whether lost turns of others keep it from coming now.
        """
        gangs = {gang: sorted(uids) for gang, uids in let_in.items()}
        lacking = {gang for gang, uids in gangs.items() if self._lacks(gang, uids, bound)}
        several = of_several((gang for gang in gangs if self._musters.of(gang)), runs=self._runs)
        # Seldom anybody lacks, and thousands may wait.
        waiting = self._sorted_in(waiting) if lacking or several else []
        lacking &= self._lost_one | {waiter.gang for waiter in waiting}
        give_way = who_gives_way(several, runs=self._runs, waiting=waiting)
        self._forget(gangs.keys(), lacking)
        still = {one.gang for one in waiting if one.gang in lacking and is_kept_waiting(one)}
        late = self._late(lacking | give_way.keys(), still=still, now=now)
        members = [(gang, bound[uid]) for gang in late for uid in gangs[gang] if uid in bound]
        members = [(gang, one) for gang, one in members if gang in lacking or maker_of(one.pod) in give_way[gang]]
        # Whom others had to leave for, and who is never evicted, waits for them where it is.
        mixed = self._mixed | {gang for gang in map(_yielding, (*waiting, *bound.values())) if gang} if late else set()
        sent_back = [one.pod for gang, one in members if gang not in mixed or not one.shape.firm]
        return [pod for pod in sent_back if not pod.metadata.deletion_timestamp]

    def _late(self, gangs: set[GangKey], *, still: Collection[GangKey | None], now: float) -> list[GangKey]:
        """Of these, which can't go on for so long that they are sent back.

        Whose members may not come, whatever there is room for, has not waited in vain since the last look.
        """
        passed, self._looked = now - self._looked, now
        since = {gang: self._since.get(gang, now) for gang in gangs}
        self._since = {gang: min(now, at + passed) if gang in still else at for gang, at in since.items()}
        self._broken = {gang: until for gang, until in self._broken.items() if now < until}
        late = {gang for gang, since in self._since.items() if now - since >= self._after}
        return sorted(late | (self._broken.keys() & gangs))

    def _sorted_in(self, waiting: Iterable[Waiter]) -> list[Waiter]:
        return [one if one.run else self._runs.sorted_in(one) for one in waiting if one.group]

    def _lacks(self, gang: GangKey, uids: Iterable[str], bound: Mapping[str, Waiter]) -> bool:
        there = list(uids)
        groups = [bound[uid].group for uid in there if uid in bound]
        least = max((group.minimum for group in groups if group), default=0)
        return len(there) + len(self._runs.finished.of_run(gang)) < least

    def _forget(self, there: AbstractSet[GangKey], lacking: set[GangKey]) -> None:
        self._lost_one &= lacking
        self._mixed &= lacking
        self._runs.finished.keep(there)
        self._runs.vacancies.keep(there)


def _yielding(waiter: Waiter) -> GangKey | None:
    """The gang of one that may be evicted."""
    return None if waiter.shape.firm else waiter.gang
