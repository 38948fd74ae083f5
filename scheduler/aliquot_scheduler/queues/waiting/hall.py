"""Where pods wait: in their queue's line, at rest after a turn that led to nothing, or nowhere, with the reason.

Only who stands in a line asks (`asked.py`): a queue's guarantee is held back for those, and not for who rests or can
never be let in. A pod is in one of the three places at most.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from math import inf

from aliquot_core.names import Names
from aliquot_scheduler.queues.waiting.asked import Asked, AwaitsNode, WhyNever, asker
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.gathering import Gathering, gathering
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.makers import Makers, maker_of
from aliquot_scheduler.queues.waiting.musters import Musters
from aliquot_scheduler.queues.waiting.runs import Said, Ways
from aliquot_scheduler.queues.waiting.vain import InVain
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Waiter, summed


class Hall:
    """All who wait."""

    def __init__(
        self, *, why_never: WhyNever, awaits_node: AwaitsNode, patience: float = inf, hold: float = inf
    ) -> None:
        """`why_never` and `awaits_node` are for who asks; the times are how long a gang may demand in vain."""
        self.in_vain = InVain(patience=patience, hold=hold)
        self.lines: dict[str, Line] = {}
        self._in_line: dict[str, str] = {}
        self._nowhere: dict[str, tuple[Waiter, str]] = {}
        self._resting: dict[str, tuple[Waiter, float]] = {}
        # Where pods of gangs wait, whether or not they stand in line.
        self.musters = Musters()
        self.asked = Asked(
            lines=self.lines,
            musters=self.musters,
            in_vain=self.in_vain,
            why_never=why_never,
            awaits_node=awaits_node,
        )
        # Who makes those of gangs that stand in line.
        self._makers = Makers()
        # By group, where its pods went that wait when that was last looked at.
        self._ways: dict[Said, Ways] = {}
        self._alarms: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._in_line) + len(self._nowhere) + len(self._resting)

    def __contains__(self, uid: str) -> bool:
        return uid in self._in_line or uid in self._nowhere or uid in self._resting

    def join(self, waiter: Waiter, *, why_never: str, books: Books) -> None:
        """Stand in line, or be told why not; who stands there already keeps the place if nothing changed."""
        if why_never:
            self.leave(waiter.uid, books=books)
            self.musters.come(waiter)
            self._nowhere[waiter.uid] = waiter, why_never
        elif (before := self.standing(waiter.uid)) and self._is_as(before, waiter, books=books):
            # Most words on a pod are what was written on it: at each of them thousands of a group would ask anew.
            self.lines[before.queue].tell(before.of(waiter.pod))
        else:
            with self.asked.at_once(books=books):
                self._join_anew(waiter, books=books)

    def _is_as(self, before: Waiter, waiter: Waiter, *, books: Books) -> bool:
        """Whether one that stands in a line asks what it did, and goes with whom it went."""
        same = before.asks_as(waiter) and maker_of(before.pod) == maker_of(waiter.pod)
        return same and self._sorted_in(waiter, books=books).run == before.run

    def _join_anew(self, waiter: Waiter, *, books: Books) -> None:
        if self._makers.counts(waiter):
            # Thousands may have to be sorted anew where their maker has one more or less.
            self._stand_back(waiter.uid, books=books)
        else:
            self.leave(waiter.uid, books=books)
        self.musters.come(waiter, stands=True)
        changes = self._makers.come(waiter)
        waiter = self._sorted_in(waiter, books=books)
        line = self.lines.setdefault(waiter.queue, Line())
        line.add(waiter)
        self._in_line[waiter.uid] = waiter.queue
        self.asked.tell(waiter, books=books)
        if changes:
            self._sort_made_alike(line, waiter, books=books)

    def rest(self, waiter: Waiter, *, until: float, books: Books) -> None:
        """Wait apart until then."""
        self.leave(waiter.uid, books=books)
        self.musters.come(waiter)
        self._resting[waiter.uid] = waiter, until
        heapq.heappush(self._alarms, (until, waiter.uid))

    def rests_until(self, uid: str) -> float | None:
        """How long a pod rests, if it does."""
        resting = self._resting.get(uid)
        return resting[1] if resting else None

    def resting(self, uid: str) -> Waiter | None:
        """Who rests, if that pod does."""
        resting = self._resting.get(uid)
        return resting[0] if resting else None

    def leave(self, uid: str, *, books: Books) -> Waiter | None:
        """Wait no more."""
        waiter = self._stand_back(uid, books=books)
        if waiter and self._makers.go(waiter) and (line := self.lines.get(waiter.queue)):
            self._sort_made_alike(line, waiter, books=books)
        return waiter

    def _stand_back(self, uid: str, *, books: Books) -> Waiter | None:
        self.musters.go(uid)
        for apart in (self._nowhere, self._resting):
            if found := apart.pop(uid, None):
                return found[0]
        queue = self._in_line.pop(uid, None)
        waiter = self.lines[queue].remove(uid) if queue is not None else None
        if waiter and queue is not None:
            self.asked.tell(waiter, books=books)
            if not len(self.lines[queue]):
                del self.lines[queue]
        return waiter

    def lost(self, times: Collection[str]) -> list[Waiter]:
        """Of these pods those who stand in a line."""
        return [self.lines[self._in_line[uid]].of(uid) for uid in times if uid in self._in_line]

    def gang_changed(self, waiter: Waiter, *, books: Books) -> None:
        """Another number of its gang is in."""
        gang = waiter.gang
        if gang is None:
            return
        self.in_vain.forget(gang)
        self._sort_anew(gang, books=books)
        self.asked.anew(gang, books=books)

    def too_few(self, waiter: Waiter, *, books: Books) -> Iterator[Waiter]:
        """Those in lines who wait with its gang, where they are fewer than it needs."""
        if (gang := waiter.gang) is None:
            return
        for queue in sorted({spot.queue for spot in self.musters.of(gang)} & self.lines.keys()):
            line = self.lines[queue]
            for first in line.firsts_of(gang):
                if not line.is_whole(first, runs=books.runs):
                    yield from line.mates(first)

    def _sort_anew(self, gang: GangKey, *, books: Books) -> None:
        """Whoever waits of its group may go with another run now."""
        said, spots = gang[:5], self.musters.of(gang)
        if not spots:
            # Who comes later goes by what is then.
            self._ways.pop(said, None)
            return
        before, ways = self._ways.get(said), books.runs.ways(gang)
        if before == ways:
            return
        self._ways[said] = ways
        runs = {"", gang[5]}.union(*({run, *makers} for run, makers in (*(before or ()), *ways)))
        for queue in sorted({spot.queue for spot in spots} & self.lines.keys()):
            self._sort_line(self.lines[queue], self.lines[queue].of_runs(gang, runs), books=books)

    def _sort_made_alike(self, line: Line, waiter: Waiter, *, books: Books) -> None:
        """Its maker has all that the group needs from now on, or not any more."""
        gang, maker = waiter.gang, maker_of(waiter.pod)
        if gang is not None:
            of_either = line.of_runs(gang, {"", maker})
            self._sort_line(line, [one for one in of_either if maker_of(one.pod) == maker], books=books)

    def _sorted_in(self, waiter: Waiter, *, books: Books) -> Waiter:
        return books.runs.sorted_in(waiter, alone=self._makers.alone(waiter))

    def _sort_line(self, line: Line, waiting: Sequence[Waiter], *, books: Books) -> None:
        """Each that goes with another run stands in another row; each row asks once."""
        moved = [(old, new) for old in waiting if (new := self._sorted_in(old, books=books)) is not old]
        for old, new in moved:
            line.remove(old.uid)
            line.add(new)
        for one in {asker(one): one for pair in moved for one in pair}.values():
            self.asked.tell(one, books=books)

    def rested(self, now: float) -> list[Waiter]:
        """Those whose rest is over; they are to join anew."""
        over = []
        while self._alarms and self._alarms[0][0] <= now:
            until, uid = heapq.heappop(self._alarms)
            if self.rests_until(uid) == until:
                over.append(self._resting[uid][0])
        return over

    def __iter__(self) -> Iterator[Waiter]:
        """All who wait."""
        for line in self.lines.values():
            yield from line
        yield from [waiter for waiter, _ in (*self._nowhere.values(), *self._resting.values())]

    def find(self, uid: str) -> Waiter | None:
        """Who waits, wherever, if that pod does."""
        if (found := self._nowhere.get(uid)) is not None:
            return found[0]
        return self.standing(uid) or self.resting(uid)

    def of_namespace(self, name: str) -> list[Waiter]:
        """All who wait of one namespace."""
        return [waiter for waiter in self if waiter.pod.metadata.namespace == name]

    def stands(self, uid: str) -> bool:
        """Whether a pod stands in a line."""
        return uid in self._in_line

    def standing(self, uid: str) -> Waiter | None:
        """Who stands in a line, if that pod does."""
        queue = self._in_line.get(uid)
        return None if queue is None else self.lines[queue].of(uid)

    def next_of_gang(self, uid: str) -> Waiter | None:
        """The first of those who stand in a line in a gang with one that does."""
        waiter = self.standing(uid)
        if waiter is None or waiter.group is None:
            return None
        return self.lines[waiter.queue].next_like(waiter)

    def candidate(self, waiter: Waiter, *, books: Books) -> Candidate:
        """Who stands in a line, with those who come in together with it."""
        together = books.runs.still_needed(waiter)
        members = tuple(self.lines[waiter.queue].mates(waiter)[:together]) if together > 1 else (waiter,)
        return Candidate(members=members, amounts=summed(members))

    def why_nowhere(self, uid: str) -> str:
        """Why a pod can't be let in, by itself or with its gang, whatever others do; empty if that is not so."""
        if found := self._nowhere.get(uid):
            return found[1]
        queue = self._in_line.get(uid)
        return self.asked.why_never(self.lines[queue].of(uid)) if queue is not None else ""

    def is_never(self, waiter: Waiter) -> bool:
        """Whether its gang can't start, whatever others do."""
        return bool(self.asked.why_never(waiter))

    def is_asked(self, waiter: Waiter, *, books: Books) -> bool:
        """Whether one that stands in a line could be let in at all: its queue is open, and its gang whole."""
        if books.ledger.tree.nodes[waiter.queue].stop:
            return False
        return waiter.group is None or (
            self.lines[waiter.queue].is_whole(waiter, runs=books.runs) and not self.is_never(waiter)
        )

    def gathering(self, waiter: Waiter, *, books: Books, names: Names) -> Gathering | None:
        """What the gang of a pod lacks to be let in as a whole; None if nothing, or if it is in none."""
        line = self.lines.get(waiter.queue)
        return gathering(waiter, line=line, musters=self.musters, books=books, names=names)

    def graft(self, moved: Collection[str], *, books: Books) -> None:
        """By other books: all in lines ask again but these, who are to be taken as waiting anew."""
        self.in_vain.clear()
        gone = [
            (self.lines[queue], self._take_out(uid, queue)) for uid in moved if (queue := self._in_line.pop(uid, ""))
        ]
        self.asked.graft(books=books)
        for line, waiter in gone:
            if self._makers.go(waiter):
                self._sort_made_alike(line, waiter, books=books)

    def _take_out(self, uid: str, queue: str) -> Waiter:
        """Out of its line, and nobody is told."""
        waiter = self.lines[queue].of(uid)
        self.musters.go(uid)
        self.lines[queue].remove(uid)
        if not len(self.lines[queue]):
            del self.lines[queue]
        return waiter

    def clear(self) -> list[Waiter]:
        """Send everybody away, to be put down in other books; until when somebody rests is still known."""
        everybody = list(self)
        self.lines.clear()
        self._in_line.clear()
        self._makers.clear()
        self.asked.clear()
        self._nowhere.clear()
        self.in_vain.clear()
        self._ways.clear()
        return everybody
