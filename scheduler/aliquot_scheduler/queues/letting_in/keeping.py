"""Against whom nodes are kept for a head that has lost patience: only as far as its share reaches.

Where the ways of a head and of somebody else part, two siblings stand side by side: two queues, or two users of one
queue. What is kept for the head is kept from the other's pods

1. never, if the other sibling has the higher priority;
2. if what the head's sibling uses is within its exact fair share (`shares.py`; of users, equal parts of their queue's)
   with the head counted in;
3. in turns, if the head is larger than what is left of that share, and some is left: if lately its sibling has used no
   larger part of what all siblings used than it is due of what they are due. What is kept idle for it counts as used
   (`books.py`), so nobody gets more than its share by asking for much at once.

From pods of its own user it is always kept. Once it is kept by 2 or 3 it is so until the head is in or its time is
over: else a node that is nearly empty would be filled again, and be of use to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import NamedTuple

from aliquot_scheduler.queues.charged.shares import equal_shares, exact_shares
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.sweep_memory import Dues, Sibling, Side, SweepMemory
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Candidate, Line
from aliquot_scheduler.queues.waiting.users import Whose

_BOTH = (COMPUTE, MEMORY)


class Left(NamedTuple):
    """What a sibling has left of its share: in whole numbers, whether that is anything, and whether it is its turn."""

    whole: Sequence[int]
    some: Sequence[bool]
    # It has used no larger part lately of what all did than it is due of what they are.
    in_turn: bool


class Keeping:
    """What is kept from whom in one sweep."""

    def __init__(
        self, *, books: Books, lines: Mapping[str, Line], memory: SweepMemory, placing: Placing, now: float
    ) -> None:
        self._books = books
        self._placing = placing
        self._lines = lines
        self._memory = memory
        self._now = now
        # By the queue that they are siblings in.
        self._users_known: dict[str, Mapping[Side, Sibling]] = {}
        # What is left on each side where somebody asked; of a queue's users the queue is told with them.
        self._left: dict[Side, Left | None] = {}
        # For whom what is kept; of them those for whom it is from all, and the others by their queue.
        self._kept: Mapping[str, tuple[str, ...]] = {}
        self._from_all: list[str] = []
        self._near: dict[str, list[tuple[str, Candidate]]] = {}
        # By the queue below which ways part, and the child of it on whose side the head is; and what of that is kept
        # from each queue.
        self._by_side: dict[str, dict[str, set[str]]] = {}
        self._far: dict[str, frozenset[str]] = {}

    def choose(self, candidate: Candidate) -> tuple[str, ...]:
        """Which nodes to keep for a head: the same as before, unless one is out by now, or somebody stays there."""
        kept, placing = self._memory.kept(now=self._now), self._placing
        free = placing.nodes().difference(*(nodes for uid, nodes in kept.items() if uid != candidate.uid))
        nodes = kept.get(candidate.uid, ())
        doublings = self._memory.doublings(candidate.uid, now=self._now)
        if free.issuperset(nodes) and placing.best_kept(candidate, among=nodes, doublings=doublings):
            return nodes
        return placing.best_kept(candidate, among=free, doublings=doublings)

    def kept_from(self, candidate: Candidate) -> frozenset[str]:
        """The nodes that are kept from it: for a guarantee from all, for others as far as their shares reach."""
        self._look_again()
        queue = candidate.first.queue
        if queue not in self._far:
            self._far[queue] = self._kept_far_from(queue)
        near = [uid for uid, head in self._near.get(queue, ()) if self._stands_back(candidate, uid, head)]
        heads = [uid for uid in (*self._from_all, *near) if uid != candidate.uid]
        return self._far[queue].union(*(self._kept[uid] for uid in heads)) if heads else self._far[queue]

    def behind(self, candidate: Candidate) -> str | None:
        """For whom a node is kept on which it would have room, if there is one (the first by UID)."""
        kept = self._memory.kept(now=self._now)
        roomy = self._placing.roomy(candidate) & self.kept_from(candidate)
        heads = (uid for uid in sorted(kept) if uid != candidate.uid and not roomy.isdisjoint(kept[uid]))
        return next(heads, None) if roomy else None

    def begin(self, head: Candidate) -> None:
        """Keep nodes for a head from now on; what then stands idle for it, and is charged to it, ends nothing."""
        keeping = self._memory.keeping(head.uid)
        if keeping is None:
            return
        path = self._books.ledger.tree.path(head.first.queue)
        sides: list[tuple[str, Side]] = [(head.first.queue, (head.first.queue, head.first.user))]
        sides += [(parent, name) for name, parent in pairwise(path)]
        keeping[1].update(mine for parent, mine in sides if self._is_within(mine, parent, head.amounts))

    def idle(self) -> dict[str, tuple[Whose, tuple[int, int]]]:
        """What stands idle for heads, no more than each asks; by their first pods."""
        kept = {uid: nodes for uid, nodes in self._memory.kept(now=self._now).items() if nodes}
        found: dict[str, tuple[Whose, tuple[int, int]]] = {}
        for uid, free in self._placing.idle_on(kept).items() if kept else ():
            if keeping := self._memory.keeping(uid):
                head = keeping[0]
                least = min(free[0], head.amounts[COMPUTE]), min(free[1], head.amounts[MEMORY])
                found[uid] = (head.first.queue, head.first.user), least
        return found

    def _look_again(self) -> None:
        """Others are kept than when this was looked at last: from whom, by the sides on which heads' shares reach."""
        kept = self._memory.kept(now=self._now)
        if kept is self._kept:
            return
        self._kept, self._far, self._near, self._by_side, self._from_all = kept, {}, {}, {}, []
        owed, path = self._memory.owed(now=self._now), self._books.ledger.tree.path
        for uid, nodes in kept.items():
            keeping = self._memory.keeping(uid)
            if keeping is None or uid in owed:
                self._from_all.append(uid)
                continue
            head = keeping[0]
            self._near.setdefault(head.first.queue, []).append((uid, head))
            for name, parent in pairwise(path(head.first.queue)):
                if self._reaches(head, name, parent):
                    self._by_side.setdefault(parent, {}).setdefault(name, set()).update(nodes)

    def _kept_far_from(self, queue: str) -> frozenset[str]:
        """For heads of other queues: at each level for a sibling's, but from none with a higher priority."""
        nodes, found = self._books.ledger.tree.nodes, set[str]()
        for name, parent in pairwise(self._books.ledger.tree.path(queue)):
            for side, kept in self._by_side.get(parent, {}).items():
                if side != name and nodes[name].priority <= nodes[side].priority:
                    found |= kept
        return frozenset(found)

    def _stands_back(self, candidate: Candidate, uid: str, head: Candidate) -> bool:
        """Whether one of the same queue does: from its own user's pods it is kept in any case."""
        if head.first.user == candidate.first.user:
            return self._memory.is_impatient(uid, now=self._now, beyond=True)
        return self._reaches(head, (head.first.queue, head.first.user), head.first.queue)

    def _reaches(self, head: Candidate, mine: Side, parent: str) -> bool:
        """Whether a head's share reaches on its side below a queue, or did since it keeps nodes."""
        keeping = self._memory.keeping(head.uid)
        if keeping is None:
            return False
        if mine not in keeping[1] and self._is_within(mine, parent, head.amounts):
            keeping[1].add(mine)
        return mine in keeping[1]

    def _is_within(self, mine: Side, parent: str, amounts: Sequence[int]) -> bool:
        if mine not in self._left:
            self._left[mine] = self._left_of(mine, parent)
        if (left := self._left[mine]) is None:
            return False
        if all(amounts[dim] <= left.whole[dim] for dim in _BOTH):
            return True
        return left.in_turn and all(left.some[dim] for dim in _BOTH if amounts[dim])

    def _left_of(self, mine: Side, parent: str) -> Left | None:
        """As of the beginning of the sweep; None if its namespace is at home elsewhere since its turn was looked at."""
        siblings = self._of(parent)
        if (me := siblings.get(mine)) is None:
            return None
        rivals = [one for one in siblings.values() if one.priority <= me.priority and one.due_part]
        lately, due = sum(one.lately for one in rivals), sum(one.due_part for one in rivals)
        left = [me.due[dim] - me.used[dim] for dim in _BOTH]
        in_turn = me.lately * due <= me.due_part * lately
        return Left(whole=[floor(part) for part in left], some=[part > 0 for part in left], in_turn=in_turn)

    def _of(self, parent: str) -> Mapping[Side, Sibling]:
        children = self._books.ledger.tree.nodes[parent].children
        # Anew with what is due, if that is worked out anew; of users what they hold counts now.
        self._shares()
        known = self._memory.siblings if children else self._users_known
        if parent not in known:
            known[parent] = {child: self._queue(child) for child in children} if children else self._users(parent)
        return known[parent]

    def _queue(self, name: str) -> Sibling:
        account, due = self._books.ledger.accounts[name], [share[name] for share in self._shares()]
        return Sibling(
            used=account.used,
            due=due,
            due_part=self._part([max(Fraction(), due[dim] - account.node.due[dim]) for dim in _BOTH]),
            lately=self._part(self._books.usage.of(name, now=self._now)),
            priority=account.node.priority,
        )

    def _users(self, queue: str) -> Mapping[Side, Sibling]:
        line, holds = self._lines.get(queue), self._books.users.held_in(queue)
        asked = {user: line.asked(user) for user in line.users()} if line else {}
        nothing = (0, 0)
        used = {user: holds.get(user, nothing) for user in sorted(holds.keys() | asked.keys())}
        shares = [
            equal_shares(share[queue], needs={user: used[user][dim] + asked.get(user, nothing)[dim] for user in used})
            for dim, share in enumerate(self._shares())
        ]
        found: dict[Side, Sibling] = {}
        for user, held in used.items():
            due, who = [share[user] for share in shares], (queue, user)
            lately = self._part(self._books.users.of(who, now=self._now))
            found[who] = Sibling(used=held, due=due, due_part=self._part(due), lately=lately)
        return found

    def _shares(self) -> Dues:
        """Of both dimensions; who may not be let in, whatever is free, needs no more than it uses."""
        books, tree = self._books, self._books.ledger.tree

        def of(dim: int) -> Mapping[str, Fraction]:
            leaves = [account for account in books.ledger.accounts.values() if not account.node.children]
            demand = {one.node.name: one.used[dim] + (0 if one.node.stop else one.asked[dim]) for one in leaves}
            return exact_shares(tree, dimension=dim, capacity=books.capacity[dim], demand=demand)

        return self._memory.due(tree, now=self._now, work_out=lambda: [of(dim) for dim in _BOTH])

    def _part(self, amounts: Sequence[float | Fraction]) -> float:
        """The larger part of all there is."""
        return max(float(amounts[dim]) / max(1, self._books.capacity[dim]) for dim in _BOTH)
