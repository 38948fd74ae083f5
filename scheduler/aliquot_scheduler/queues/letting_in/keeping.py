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

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import msgspec

from aliquot_scheduler.queues.charged.shares import equal_shares, exact_shares
from aliquot_scheduler.queues.letting_in.sweep_memory import Dues, Side, SweepMemory
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Candidate, Line, Waiter
from aliquot_scheduler.queues.waiting.users import Whose

_BOTH = (COMPUTE, MEMORY)


class Sibling(msgspec.Struct, frozen=True, kw_only=True):
    """One queue among those of its parent, or one user among those of a queue."""

    # Of compute and memory.
    used: Sequence[int]
    due: Sequence[Fraction]
    # The larger part of both, beyond its guarantee: of what it is due, and of what it used lately.
    due_part: float
    lately: float
    priority: int = 0


class Keeping:
    """What is kept from whom in one sweep."""

    def __init__(self, *, books: Books, lines: Mapping[str, Line], memory: SweepMemory, now: float) -> None:
        self._books = books
        self._lines = lines
        self._memory = memory
        self._now = now
        # By the queue that they are siblings in.
        self._siblings: dict[str, Mapping[Side, Sibling]] = {}

    def for_others(self, candidate: Candidate) -> frozenset[str]:
        """The nodes that are kept for other heads, from whomever."""
        kept = self._memory.kept(now=self._now)
        return frozenset(node for uid, nodes in kept.items() if uid != candidate.uid for node in nodes)

    def kept_from(self, candidate: Candidate) -> frozenset[str]:
        """The nodes that are kept from it."""
        kept = self._memory.kept(now=self._now)
        heads = (uid for uid in kept if uid != candidate.uid and self.stands_back(candidate, behind=uid))
        return frozenset(node for uid in heads for node in kept[uid])

    def stands_back(self, candidate: Candidate, *, behind: str) -> bool:
        """Whether what is kept for a head is kept from this one: for a guarantee from all."""
        memory, keeping = self._memory, self._memory.keeping(behind)
        if keeping is None or behind in memory.owed(now=self._now):
            return True
        head, reach = keeping
        if (head.first.queue, head.first.user) == (candidate.first.queue, candidate.first.user):
            return memory.is_impatient(behind, now=self._now, beyond=True)
        return self._is_kept(head, reach, against=candidate)

    def begin(self, head: Candidate) -> None:
        """Keep nodes for a head from now on; what then stands idle for it, and is charged to it, ends nothing."""
        keeping = self._memory.keeping(head.uid)
        if keeping is None:
            return
        path = self._books.ledger.tree.path(head.first.queue)
        sides: list[tuple[str, Side]] = [(head.first.queue, (head.first.queue, head.first.user))]
        sides += [(parent, name) for name, parent in pairwise(path)]
        keeping[1].update(mine for parent, mine in sides if self._is_within(mine, parent, head.amounts))

    def idle(self, free_on: Callable[[Iterable[str]], tuple[int, int]]) -> dict[str, tuple[Whose, tuple[int, int]]]:
        """What stands idle for heads, no more than each asks; by their first pods."""
        found: dict[str, tuple[Whose, tuple[int, int]]] = {}
        for uid, nodes in self._memory.kept(now=self._now).items():
            if nodes and (keeping := self._memory.keeping(uid)):
                head, free = keeping[0], free_on(nodes)
                least = min(free[0], head.amounts[COMPUTE]), min(free[1], head.amounts[MEMORY])
                found[uid] = (head.first.queue, head.first.user), least
        return found

    def _is_kept(self, head: Candidate, reach: set[Side], *, against: Candidate) -> bool:
        """From another user's; `reach` are the sides on which its share does, and grows."""
        tree = self._books.ledger.tree
        parent, mine, other = parting(tree, head.first, against.first)
        if isinstance(mine, str) and isinstance(other, str) and tree.nodes[other].priority > tree.nodes[mine].priority:
            return False
        if mine not in reach and self._is_within(mine, parent, head.amounts):
            reach.add(mine)
        return mine in reach

    def _is_within(self, mine: Side, parent: str, amounts: Sequence[int]) -> bool:
        siblings = self._of(parent)
        me = siblings.get(mine)
        if me is None:
            # Its namespace is at home elsewhere since its turn was looked at.
            return False
        if all(me.used[dim] + amounts[dim] <= me.due[dim] for dim in _BOTH):
            return True
        if any(me.used[dim] >= me.due[dim] for dim in _BOTH if amounts[dim]):
            return False
        rivals = [one for one in siblings.values() if one.priority <= me.priority and one.due_part]
        return me.lately * sum(one.due_part for one in rivals) <= me.due_part * sum(one.lately for one in rivals)

    def _of(self, parent: str) -> Mapping[Side, Sibling]:
        if parent not in self._siblings:
            children = self._books.ledger.tree.nodes[parent].children
            self._siblings[parent] = (
                {child: self._queue(child) for child in children} if children else self._users(parent)
            )
        return self._siblings[parent]

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


def parting(tree: Tree, one: Waiter, other: Waiter) -> tuple[str, Side, Side]:
    """Below which queue the ways of two part, and on which side each is."""
    if one.queue == other.queue:
        return one.queue, (one.queue, one.user), (other.queue, other.user)
    ways = zip(reversed(tree.path(one.queue)), reversed(tree.path(other.queue)), strict=False)
    parent = ""
    for mine, others in ways:
        if mine != others:
            return parent, mine, others
        parent = mine
    raise AssertionError(f"{one.queue} and {other.queue} do not part: pods wait in leaves")
