"""Against whom nodes are kept for a head that has lost patience: only as far as its share reaches.

What is kept for a head is kept from the pods of another

1. never, if where their ways part the other's sibling has the higher priority;
2. if the share of the head's sibling reaches there (`reaching.py`);
3. of its own user in any case, for as long as heads may hold others up as it comes.

What is kept for a guarantee is kept from all. Hundreds of heads may have nodes, and few of those have room at any
moment: who comes in is asked about those few, and how far a head's share reaches only where that makes a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.judging.fitting import ByRow
from aliquot_scheduler.queues.judging.rules import Cause
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.reaching import Reaching
from aliquot_scheduler.queues.letting_in.sides import Sides
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Where more nodes have room somebody is let in soon: it is not worth while to ask of each.
_FEW = 256


class Keeping:
    """What is kept from whom in one sweep."""

    def __init__(
        self,
        *,
        books: Books,
        cards: Cards,
        lines: Mapping[str, Line],
        memory: SweepMemory,
        placing: Placing,
        now: float,
    ) -> None:
        self._tree = books.ledger.tree
        self._cards = cards
        self._placing = placing
        self._memory = memory
        self._now = now
        self._reaching = Reaching(books=books, cards=cards, lines=lines, memory=memory, now=now)
        # For whom what is kept, and the other way round; and what of all that, or of what has room, is kept from whom.
        self._kept: Mapping[str, tuple[str, ...]] = {}
        self._heads: dict[str, list[str]] = {}
        self._all: Sides | None = None
        self._with_room: Sides | None = None
        # On which nodes a card may have room, and all of these; which of them are kept for whom, the first by UID.
        self._room: ByRow | None = None
        self._every_row = 0
        self._by_head: list[tuple[str, int]] | None = None
        self._leaves_room: Callable[[Candidate], bool] | None = None

    def choose(self, candidate: Candidate) -> tuple[str, ...]:
        """Which nodes to keep for a head: the same as before, unless one is out, or somebody came there, or stays."""
        self._look_again()
        placing, heads, uid = self._placing, self._heads, candidate.uid
        mine = () if self._memory.choose_anew(uid) else self._kept.get(uid, ())
        doublings = self._memory.patience.doublings(uid, now=self._now)
        undisputed = placing.nodes().issuperset(mine) and all(heads.get(node, [uid]) == [uid] for node in mine)
        if undisputed and placing.to_come.best_kept(candidate, among=mine, doublings=doublings):
            return mine
        free = placing.nodes() - {node for node, uids in heads.items() if uids != [uid]}
        return placing.to_come.best_kept(candidate, among=free, doublings=doublings)

    def anything(self) -> bool:
        """Whether any node is kept for anybody."""
        self._look_again()
        return bool(self._heads)

    def all_kept(self) -> Collection[str]:
        """All nodes that are kept for anybody."""
        self._look_again()
        return self._heads

    def kept_from(self, candidate: Candidate) -> frozenset[str]:
        """The nodes that are kept from it: for a guarantee from all, for others as far as their shares reach."""
        self._look_again()
        if self._all is None:
            self._all = self._sides(list(self._heads))
        return self._all.kept_from(candidate)

    def waiting_for(self, nodes: Collection[str]) -> dict[str, int]:
        """The heads for whom these nodes are kept that wait for others' guarantees, by UID: in which dimension."""
        self._look_again()
        heads = {uid for node in nodes for uid in self._heads.get(node, ())}
        said = [(uid, self._memory.looks.said_of(uid)) for uid in heads]
        return {uid: why.dimension for uid, why in said if why and why.cause is Cause.HELD_BACK and not why.reserved}

    def is_kept_but_for(self, node: str, uids: Collection[str]) -> bool:
        """Whether a node is kept for anybody but these."""
        return any(uid not in uids for uid in self._heads.get(node, ()))

    def leaves_room(self) -> Callable[[Candidate], bool]:
        """Whether a card may have room for one on a node that is not kept from it: quick, and never wrongly no.

        To be asked of as many as are looked at until others are kept or room changes: what is one for all is worked
        out once, since thousands may be asked about.
        """
        self._look_again()
        if self._leaves_room is None:
            self._leaves_room = self._worked_out()
        return self._leaves_room

    def _worked_out(self) -> Callable[[Candidate], bool]:
        if not self._heads or len((room := self._by_row()).rows) > _FEW:
            return _always
        if self._with_room is None:
            names = self._placing.names
            self._with_room = self._sides([names.get(row, "") for row in room.rows])
        sides, every = self._with_room, self._every_row

        def leaves_room(candidate: Candidate) -> bool:
            number, left = candidate.number, every & ~sides.places_kept_from(candidate)
            return (left > 0 and room.takes(number, left)) or room.asks_no_compute(number)

        return leaves_room

    def roughly_behind(self, candidate: Candidate) -> str:
        """For whom a node is kept on which a card may have room for it, of one that is left none elsewhere."""
        room = self._by_row()
        if self._by_head is None:
            nodes = [self._placing.names.get(row, "") for row in room.rows]
            pairs = ((uid, 1 << place) for place, node in enumerate(nodes) for uid in self._heads.get(node, ()))
            self._by_head = sorted(pairs)
        mine, number = candidate.uid, candidate.number
        return next(uid for uid, place in self._by_head if uid != mine and room.takes(number, place))

    def behind(self, candidate: Candidate) -> str | None:
        """For whom a node is kept on which it would have room, if there is one (the first by UID)."""
        nodes = self._placing.roomy(candidate) & self.kept_from(candidate)
        return min((uid for node in nodes for uid in self._heads[node] if uid != candidate.uid), default=None)

    def room_changed(self) -> None:
        """Somebody was let in."""
        self._room = self._with_room = self._by_head = self._leaves_room = None

    def begin(self, head: Candidate) -> None:
        """Keep nodes for a head from now on."""
        self._reaching.begin(head)

    def idle(self) -> dict[str, tuple[Whose, tuple[int, int]]]:
        """What stands idle for heads, no more than each asks; by their first pods."""
        kept = {uid: nodes for uid, nodes in self._memory.kept(now=self._now).items() if nodes}
        found: dict[str, tuple[Whose, tuple[int, int]]] = {}
        for uid, free in self._placing.to_come.idle_on(kept).items() if kept else ():
            if keeping := self._memory.keeping(uid):
                head = keeping[0]
                least = min(free[0], head.amounts[COMPUTE]), min(free[1], head.amounts[MEMORY])
                found[uid] = (head.first.queue, head.first.user), least
        return found

    def _look_again(self) -> None:
        """Others are kept than when this was looked at last."""
        kept = self._memory.kept(now=self._now)
        if kept is not self._kept:
            self._kept, self._heads = kept, {}
            self._all = self._with_room = self._by_head = self._leaves_room = None
            for uid, nodes in kept.items():
                for node in nodes:
                    self._heads.setdefault(node, []).append(uid)

    def _by_row(self) -> ByRow:
        if self._room is None:
            self._room = self._cards.fitting_by_row()
            self._every_row = (1 << len(self._room.rows)) - 1
        return self._room

    def _sides(self, nodes: Sequence[str]) -> Sides:
        return Sides(
            nodes,
            heads=self._heads,
            tree=self._tree,
            memory=self._memory,
            reaching=self._reaching,
            now=self._now,
        )


def _always(_: Candidate) -> bool:
    return True
