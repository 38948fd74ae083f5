"""Where pods wait: in their queue's line, at rest after a turn that led to nothing, or nowhere, with the reason.

Only who stands in a line asks: a queue's guarantee is held back for those, and not for who rests or can never be let
in. A gang asks once so many of it are there that it could start, and could start at all: else one pod of a group that
never comes, or that is too large for its queue, would keep from others what nobody can use. It asks at once for what it
needs to start, and for each of the others apart. A pod is in one of the three places at most.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import inf

from aliquot_core.names import Names
from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.gathering import Gathering, gathering
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.makers import Makers, maker_of
from aliquot_scheduler.queues.waiting.musters import Musters
from aliquot_scheduler.queues.waiting.runs import Said, Ways
from aliquot_scheduler.queues.waiting.vain import InVain
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Waiter, asked_by, summed

# Who asks: a pod by its UID, or a gang of one user's in one queue.
Asker = str | tuple[str, str, GangKey]
# What one asks, each part by the UID of the first pod that it is of; what a gang needs to start comes first.
Asks = Mapping[str, Ask]
_NOTHING: Asks = {}
# Why these can't be let in together, whatever others do; empty if they could.
WhyNever = Callable[[Sequence[Waiter]], str]


class Hall:
    """All who wait."""

    def __init__(self, *, why_never: WhyNever, patience: float = inf, hold: float = inf) -> None:
        """`why_never` is asked of what a gang needs to start; the times are how long it may demand in vain."""
        self._why_never = why_never
        self.in_vain = InVain(patience=patience, hold=hold)
        self.lines: dict[str, Line] = {}
        self._in_line: dict[str, str] = {}
        # What each pod, or each gang, asks at once, by the first pod of it: thousands may be of one gang.
        self._asking: dict[Asker, Asks] = {}
        # The gangs among them.
        self._starting: set[tuple[str, str, GangKey]] = set()
        # Gangs that can't start, whatever others do, and why.
        self._never: dict[Asker, str] = {}
        self._nowhere: dict[str, tuple[Waiter, str]] = {}
        self._resting: dict[str, tuple[Waiter, float]] = {}
        # Where pods of gangs wait, whether or not they stand in line.
        self.musters = Musters()
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
        if why_never or not self._makers.counts(waiter):
            self.leave(waiter.uid, books=books)
        else:
            # Thousands may have to be sorted anew where their maker has one more or less.
            self._stand_back(waiter.uid, books=books)
        self.musters.come(waiter, stands=not why_never)
        if why_never:
            self._nowhere[waiter.uid] = waiter, why_never
            return
        changes = self._makers.come(waiter)
        waiter = self._sorted_in(waiter, books=books)
        line = self.lines.setdefault(waiter.queue, Line())
        line.add(waiter)
        self._in_line[waiter.uid] = waiter.queue
        self._tell(waiter, books=books)
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
            self._tell(waiter, books=books)
            if not len(self.lines[queue]):
                del self.lines[queue]
        return waiter

    def asked_by(self, uid: str) -> Sequence[Ask]:
        """What one who is of no group asks in its line."""
        return tuple(self._asking.get(uid, _NOTHING).values())

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
        self.ask_anew(gang, books=books)

    def too_few(self, waiter: Waiter, *, books: Books) -> Iterator[Waiter]:
        """Those in lines who wait with its gang, where they are fewer than it needs."""
        if (gang := waiter.gang) is None:
            return
        for queue in sorted({spot.queue for spot in self.musters.of(gang)} & self.lines.keys()):
            line = self.lines[queue]
            for first in line.firsts_of(gang):
                if line.gathered(first) < books.runs.still_needed(first):
                    yield from line.mates(first)

    def starting(self, *, books: Books) -> Iterator[Sequence[Waiter]]:
        """Of each gang that asks, where something is guaranteed, what it needs to start."""
        for queue, user, gang in self._starting:
            if books.ledger.guaranteed(queue):
                mates = self.lines[queue].mates_of(user, gang)
                yield mates[: books.runs.still_needed(mates[0])]

    def ask_anew(self, gang: GangKey, *, books: Books) -> None:
        """What this gang asks may be something else by now."""
        # Of one that was let in elsewhere too: since then its namespace may be at home in another queue.
        for queue in sorted({spot.queue for spot in self.musters.of(gang)} & self.lines.keys()):
            line = self.lines[queue]
            for first in line.firsts_of(gang):
                line.changed(first)
                self._tell(first, books=books)

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
        for one in {_asker(one): one for pair in moved for one in pair}.values():
            self._tell(one, books=books)

    def look_anew(self, *, books: Books) -> None:
        """Other hardware: a gang that could not start may do so now, or the other way round."""
        self.in_vain.clear()
        gangs = {_asker(waiter): waiter for line in self.lines.values() for waiter in line if waiter.group}
        for waiter in gangs.values():
            self._tell(waiter, books=books)

    def _tell(self, waiter: Waiter, *, books: Books) -> None:
        """Let one ask, or its gang if it could start; of who is gone by now only its gang does."""
        who, mates = _asker(waiter), self._mates(waiter)
        self._never.pop(who, None)
        asked = self._asking.pop(who, _NOTHING)
        asks = self._asks(who, mates, asked=asked, books=books)
        if isinstance(who, tuple):
            self._starting.discard(who)
        self._put_down(who, asks)
        for uid, ask in asked.items():
            if asks.get(uid) != ask:
                books.ledger.ask_no_more(waiter.queue, ask)
        for uid, ask in asks.items():
            if asked.get(uid) != ask:
                books.ledger.ask(waiter.queue, ask)

    def _put_down(self, who: Asker, asks: Asks) -> None:
        if asks:
            self._asking[who] = asks
            if isinstance(who, tuple) and not _is_quiet(asks):
                self._starting.add(who)

    def _mates(self, waiter: Waiter) -> Sequence[Waiter]:
        if waiter.group:
            return self.lines[waiter.queue].mates(waiter)
        return (waiter,) if waiter.uid in self._in_line else ()

    def _asks(self, who: Asker, mates: Sequence[Waiter], *, asked: Asks, books: Books) -> Asks:
        # A held queue lets nobody in, so nothing is held back for it.
        if not mates or books.ledger.tree.nodes[mates[0].queue].stop:
            return _NOTHING
        needed = books.runs.still_needed(mates[0])
        if len(mates) < needed:
            return _NOTHING
        if mates[0].group and (why := self._why_never(mates[:needed])):
            self._never[who] = why
            return _NOTHING
        quiet = self.in_vain.is_quiet(mates[0])
        asks = {mates[0].uid: asked_by(mates[:needed], quiet=quiet)}
        if len(mates) > needed:
            # Who asked for itself before asks the same: it would have left if it were otherwise.
            first, known = next(iter(asked), ""), asked if quiet == _is_quiet(asked) else _NOTHING
            for one in mates[needed:]:
                ask = known.get(one.uid) if one.uid != first else None
                asks[one.uid] = ask or asked_by((one,), quiet=quiet)
        return asks

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
        return self._never.get(_asker(self.lines[queue].of(uid)), "") if queue is not None and self._never else ""

    def is_never(self, waiter: Waiter) -> bool:
        """Whether its gang can't start, whatever others do."""
        return _asker(waiter) in self._never

    def gathering(self, waiter: Waiter, *, books: Books, names: Names) -> Gathering | None:
        """What the gang of a pod lacks to be let in as a whole; None if nothing, or if it is in none."""
        line = self.lines.get(waiter.queue)
        return gathering(waiter, line=line, musters=self.musters, books=books, names=names)

    def graft(self, moved: Collection[str], *, books: Books) -> None:
        """By other books: all in lines ask again but these, who are to be taken as waiting anew."""
        self.in_vain.clear()
        self._asking.clear()
        self._starting.clear()
        gone = [
            (self.lines[queue], self._take_out(uid, queue)) for uid in moved if (queue := self._in_line.pop(uid, ""))
        ]
        asked = Counter[tuple[str, Ask]]()
        for who, waiter in {_asker(one): one for line in self.lines.values() for one in line}.items():
            asks = self._asks(who, self._mates(waiter), asked=_NOTHING, books=books)
            self._put_down(who, asks)
            asked.update((waiter.queue, ask) for ask in asks.values())
        books.ledger.ask_all(asked)
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
        self._asking.clear()
        self._starting.clear()
        self._never.clear()
        self._nowhere.clear()
        self.in_vain.clear()
        self._ways.clear()
        return everybody


def _is_quiet(asks: Asks) -> bool:
    """Whether it demands nothing for now: all of a gang, or none."""
    return any(ask.quiet for ask in islice(asks.values(), 1))


def _asker(waiter: Waiter) -> Asker:
    return (waiter.queue, waiter.user, waiter.gang) if waiter.gang else waiter.uid
