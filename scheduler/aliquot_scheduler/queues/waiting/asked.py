"""What those ask who stand in lines: told to the ledger as it changes, since guarantees are held back by it.

A gang asks once so many of it are there that it could start, and could start at all: else one pod of a group that never
comes, or that is too large for its queue, would keep from others what nobody can use. It asks at once for what it needs
to start, and for each of the others apart. A gang that finds no place for long asks quietly (`vain.py`). So does, where
a queue grows, who could be taken by no node that is there, even an empty one: nobody could use what would be held back
for it, and no share is due for it, until such a node comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.musters import Musters
from aliquot_scheduler.queues.waiting.vain import InVain
from aliquot_scheduler.queues.waiting.waiter import GangKey, Waiter, asked_by

# Who asks: a pod by its UID, or a gang of one user's in one queue.
Asker = str | tuple[str, str, GangKey]
# What one asks, each part by the UID of the first pod that it is of; what a gang needs to start comes first.
Asks = Mapping[str, Ask]
_NOTHING: Asks = {}
# Why these can't be let in together, whatever others do; empty if they could.
WhyNever = Callable[[Sequence[Waiter]], str]
# Whether these could come in together only by a node that is yet to come.
AwaitsNode = Callable[[Sequence[Waiter]], bool]


class Asked:
    """By all who stand in these lines."""

    def __init__(
        self,
        *,
        lines: Mapping[str, Line],
        musters: Musters,
        in_vain: InVain,
        why_never: WhyNever,
        awaits_node: AwaitsNode,
    ) -> None:
        """`why_never` is asked of what a gang needs to start, `awaits_node` of that and of each other one."""
        self._lines = lines
        self._musters = musters
        self._in_vain = in_vain
        self._why_never = why_never
        self._awaits_node = awaits_node
        # Thousands may be of one gang.
        self._asking: dict[Asker, Asks] = {}
        # Who of them could come in only by a node that is yet to come, and the first pod of each; mostly nobody.
        self._awaiting: dict[Asker, str] = {}
        # The gangs among them.
        self._starting: set[tuple[str, str, GangKey]] = set()
        # Gangs that can't start, whatever others do, and why.
        self._never: dict[Asker, str] = {}
        # Who is to be told of at once, while several come and go: by queue, which one of no group may have left.
        self._untold: dict[tuple[str, Asker], Waiter] | None = None

    # --- events ------------------------------------------------------------------------------------------------------
    @contextmanager
    def at_once(self, *, books: Books) -> Iterator[None]:
        """Whoever is told of meanwhile asks once all of that is done: of a gang each one changes what all of it ask."""
        if self._untold is not None:
            yield
            return
        self._untold = {}
        try:
            yield
        finally:
            untold, self._untold = self._untold, None
            for waiter in untold.values():
                self.tell(waiter, books=books)

    def tell(self, waiter: Waiter, *, books: Books) -> None:
        """Let one ask, or its gang if it could start; of who is gone by now only its gang does."""
        who = asker(waiter)
        if self._untold is not None:
            self._untold[waiter.queue, who] = waiter
            return
        mates = self._mates(waiter)
        self._never.pop(who, None)
        asked = self._asking.pop(who, _NOTHING)
        asks = self._asks(who, mates, asked=asked, books=books)
        if isinstance(who, tuple):
            self._starting.discard(who)
        self._put_down(waiter, who, asks)
        for uid, ask in asked.items():
            if asks.get(uid) != ask:
                books.ledger.ask_no_more(waiter.queue, ask)
        for uid, ask in asks.items():
            if asked.get(uid) != ask:
                books.ledger.ask(waiter.queue, ask)

    def anew(self, gang: GangKey, *, books: Books) -> None:
        """What this gang asks may be something else by now."""
        # Of one that was let in elsewhere too: since then its namespace may be at home in another queue.
        for queue in sorted({spot.queue for spot in self._musters.of(gang)} & self._lines.keys()):
            line = self._lines[queue]
            for first in line.firsts_of(gang):
                line.changed(first)
                self.tell(first, books=books)

    def look_anew(self, *, books: Books) -> None:
        """Other hardware: a gang that could not start may do so now, or who awaits a node has it; or the other way."""
        waiting = (waiter for line in self._lines.values() for waiter in line)
        changed = {asker(waiter): waiter for waiter in waiting if waiter.group or self._asks_otherwise(waiter)}
        for waiter in changed.values():
            self.tell(waiter, books=books)

    def graft(self, *, books: Books) -> None:
        """By other books, in which nobody asks yet."""
        self._asking.clear()
        self._awaiting.clear()
        self._starting.clear()
        asked = Counter[tuple[str, Ask]]()
        for who, waiter in {asker(one): one for line in self._lines.values() for one in line}.items():
            asks = self._asks(who, self._mates(waiter), asked=_NOTHING, books=books)
            self._put_down(waiter, who, asks)
            asked.update((waiter.queue, ask) for ask in asks.values())
        books.ledger.ask_all(asked)

    def clear(self) -> None:
        """Nobody stands in line."""
        self._asking.clear()
        self._awaiting.clear()
        self._starting.clear()
        self._never.clear()

    # --- questions ---------------------------------------------------------------------------------------------------
    def by(self, uid: str) -> Sequence[Ask]:
        """What one who is of no group asks."""
        return tuple(self._asking.get(uid, _NOTHING).values())

    def awaits_node(self, waiter: Waiter) -> bool:
        """Whether it, or what its gang needs to start, asks and could come in only by a node that is yet to come."""
        return bool(self._awaiting) and asker(waiter) in self._awaiting

    def awaiting(self) -> Mapping[Asker, str]:
        """All of whom that is so, and the first pod of each, by UID."""
        return self._awaiting

    def starting(self, *, books: Books) -> Iterator[Sequence[Waiter]]:
        """Of each gang that asks, where something is guaranteed, what it needs to start."""
        for queue, user, gang in self._starting:
            if books.ledger.guaranteed(queue):
                mates = self._lines[queue].mates_of(user, gang)
                yield mates[: books.runs.still_needed(mates[0])]

    def why_never(self, waiter: Waiter) -> str:
        """Why its gang can't start, whatever others do; empty if it could."""
        return self._never.get(asker(waiter), "") if self._never else ""

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _put_down(self, waiter: Waiter, who: Asker, asks: Asks) -> None:
        awaiting = [ask.amounts for ask in asks.values() if ask.awaits_node]
        if (line := self._lines.get(waiter.queue)) is not None:
            line.await_nodes(waiter.user, who, awaiting)
        self._awaiting.pop(who, None)
        # What it needs to start comes first.
        first = next(iter(asks), "")
        if first and asks[first].awaits_node:
            self._awaiting[who] = first
        if asks:
            self._asking[who] = asks
            if isinstance(who, tuple) and not asks[first].quiet:
                self._starting.add(who)

    def _asks_otherwise(self, waiter: Waiter) -> bool:
        """Whether one of no group awaits a node and need not any more, or the other way round."""
        asked = self.by(waiter.uid)
        return bool(asked) and asked[0].awaits_node != self._awaits_node((waiter,))

    def _mates(self, waiter: Waiter) -> Sequence[Waiter]:
        line = self._lines.get(waiter.queue)
        if line is None:
            return ()
        if waiter.group:
            return line.mates(waiter)
        return (waiter,) if waiter.uid in line else ()

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
        quiet, awaits = self._in_vain.is_quiet(mates[0]), self._awaits_node(mates[:needed])
        asks = {mates[0].uid: asked_by(mates[:needed], quiet=quiet, awaits_node=awaits)}
        if len(mates) > needed:
            first, alone = next(iter(asked), ""), dict[int, bool]()
            for one in mates[needed:]:
                # Thousands of a gang ask the same.
                if one.number not in alone:
                    alone[one.number] = awaits or self._awaits_node((one,))
                # Who asked for itself before asks the same: it would have left if it were otherwise.
                ask, silent = asked.get(one.uid) if one.uid != first else None, quiet or alone[one.number]
                known = ask if ask and (ask.quiet, ask.awaits_node) == (silent, alone[one.number]) else None
                asks[one.uid] = known or asked_by((one,), quiet=silent, awaits_node=alone[one.number])
        return asks


def asker(waiter: Waiter) -> Asker:
    """Who asks for one: itself, or its gang."""
    return (waiter.queue, waiter.user, waiter.gang) if waiter.gang else waiter.uid
