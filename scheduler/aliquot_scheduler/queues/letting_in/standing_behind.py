"""Heads of lines before whom others come in that ask the same: what is kept for them, and their patience, is those'.

Whoever of a user's asks the same is let in or refused with it, and the first of them is asked: one of a higher
PriorityClass that comes later, one that is back from a turn that led to nothing, another pod of its own group, another
group. It would be refused the node that is kept for the head, and the head not be asked: the node would stand idle. So
the first of them has waited as long as any of them, and comes in there; then the head goes on from where it was.

And heads of whom nobody is asked: their queue is held, their group is whole no more or can't start whatever others do,
they wait apart, or who comes in before them may not come now, since the line is closed to it. Nothing would come to
what is kept for these; nor for those who could come in only by a node that is yet to come, in queues that grow.

Of a thousand heads of one user nearly nothing changes from one sweep to the next: who comes in before whom is kept as
long as the user's candidates are the same list, and the queues are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.tree import Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Heads
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Who comes in before each of these heads (UIDs) and asks the same; None before one of whom nobody is asked.
Firsts = Mapping[str, Candidate | None]


@dataclass(kw_only=True)
class _OfUser:
    """Of one user's heads who are of no group, as long as these are its candidates."""

    heads: Heads
    asked: set[str] = field(default_factory=set)
    firsts: dict[str, Candidate | None] = field(default_factory=dict)


class StandingBehind:
    """Who stands behind whom, as they stand in their lines now."""

    def __init__(self, *, memory: SweepMemory, hall: Hall, books: Books) -> None:
        self._memory = memory
        self._hall = hall
        self._books = books
        self._known: dict[Whose, _OfUser] = {}
        # The queues of which that was asked.
        self._tree: Tree | None = None

    def line_up(self, *, shown: Collection[str], now: float) -> None:
        """Tell the memory; for who is `shown` to an autoscaler nothing is kept."""
        uids = self._memory.patience.impatient_anywhere(now=now) | self._memory.owed(now=now)
        firsts = self._firsts(uids)
        if shown:
            firsts = {uid: None if first and first.uid in shown else first for uid, first in firsts.items()}
        if self._hall.asked.awaiting():
            firsts = {**firsts, **dict.fromkeys(filter(self._awaits_node, uids))}
        self._memory.stand_behind(firsts)

    def _firsts(self, uids: AbstractSet[str]) -> Firsts:
        """Of these heads."""
        self._forget_what_changed(uids)
        found: dict[str, Candidate | None] = {}
        for uid in uids - set[str]().union(*(known.asked for known in self._known.values())):
            self._ask(uid, found)
        for known in self._known.values():
            found.update(known.firsts)
        return found

    def _ask(self, uid: str, found: dict[str, Candidate | None]) -> None:
        head = self._hall.standing(uid)
        if head is None:
            found[uid] = None
            return
        line, runs = self._hall.lines[head.queue], self._books.runs
        if head.group is None:
            # Whether a group is whole, and could start, need not show in its user's candidates.
            heads = line.heads(head.user, runs=runs)
            known = self._known.setdefault(head.whose, _OfUser(heads=heads))
            known.asked.add(uid)
            found = known.firsts
        if not self._hall.is_asked(head, books=self._books):
            found[uid] = None
        elif uid not in line.heads(head.user, runs=runs).leading:
            found[uid] = line.first_like(head, runs=runs)

    def _awaits_node(self, uid: str) -> bool:
        head = self._hall.standing(uid)
        return head is not None and self._hall.asked.awaits_node(head)

    def _forget_what_changed(self, uids: AbstractSet[str]) -> None:
        if self._tree is not self._books.ledger.tree:
            self._tree = self._books.ledger.tree
            self._known.clear()
        for who in [who for who, known in self._known.items() if not self._is_as_it_was(who, known, uids)]:
            del self._known[who]

    def _is_as_it_was(self, who: Whose, known: _OfUser, uids: AbstractSet[str]) -> bool:
        queue, user = who
        line = self._hall.lines.get(queue)
        if line is None or user not in line.users():
            return False
        return line.heads(user, runs=self._books.runs) is known.heads and known.asked <= uids
