"""How far the share of a head reaches that has lost patience, where its way and somebody else's part.

There two siblings stand side by side: two queues, or two users of one queue. The share of the head's sibling reaches

1. if what it uses is within its fair share with the head counted in: of queues the one that is shown (`fair.py`), in
   exact fractions; of users equal parts of their queue's;
2. of queues, if it would be were no child of it beyond its own fair share, and the head's own child reaches so among
   them: what one lends to the other below is their matter, and nobody's right outside;
3. in turns, if the head is larger than what is left of that share, and some is left: if lately it has used no larger
   part of what all siblings used than it is due of what they are due. What is kept idle for it counts as used
   (`books.py`), so nobody gets more than its share by asking for much at once.

Once it reaches so it does until the head is in, or one to whom it handed its node on, or its time is over: else a node
that is nearly empty would be filled again, and be of use to nobody. From pod to pod it is worked out anew: else a user
had all there is, by pods that come before one another without end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor, fsum

from aliquot_scheduler.queues.charged.fair import due_of
from aliquot_scheduler.queues.charged.shares import equal_shares
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.letting_in.siblings import Dues, Left, Sibling, Side
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Vector
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.line import Line
from aliquot_scheduler.queues.waiting.waiter import Candidate

_BOTH = (COMPUTE, MEMORY)
_NOTHING = (0, 0)


class Reaching:
    """As of the beginning of one sweep."""

    def __init__(
        self, *, books: Books, cards: Cards, lines: Mapping[str, Line], memory: SweepMemory, now: float
    ) -> None:
        self._books = books
        self._cards = cards
        self._lines = lines
        self._memory = memory
        self._now = now
        # By the queue that they are siblings in.
        self._users_known: dict[str, Mapping[Side, Sibling]] = {}
        # What is left on each side where somebody asked in this sweep: of users what they hold now counts; and which
        # heads that is enough for: hundreds are asked about again and again.
        self._left: dict[Side, Left | None] = {}
        self._within: dict[tuple[Side, str, Vector], bool] = {}

    def begin(self, head: Candidate) -> None:
        """Nodes are kept for it from now on; what then stands idle for it, and is charged to it, ends nothing."""
        keeping = self._memory.keeping(head.uid)
        if keeping is None:
            return
        path = self._books.ledger.tree.path(head.first.queue)
        sides: list[tuple[str, Side]] = [(head.first.queue, (head.first.queue, head.first.user))]
        sides += [(parent, name) for name, parent in pairwise(path)]
        keeping[1].update(mine for parent, mine in sides if self._is_within(head, mine, parent))

    def reaches(self, head: Candidate, mine: Side, parent: str) -> bool:
        """Whether a head's share reaches on its side below a queue, or did since it keeps nodes."""
        keeping = self._memory.keeping(head.uid)
        if keeping is None:
            return False
        if mine not in keeping[1] and self._is_within(head, mine, parent):
            keeping[1].add(mine)
        return mine in keeping[1]

    def _is_within(self, head: Candidate, mine: Side, parent: str) -> bool:
        asked = mine, head.first.queue, head.amounts
        if asked not in self._within:
            self._within[asked] = self._is_enough(head, mine, parent)
        return self._within[asked]

    def _is_enough(self, head: Candidate, mine: Side, parent: str) -> bool:
        if mine not in self._left:
            self._left[mine] = self._left_of(mine, parent)
        if (left := self._left[mine]) is None:
            return False
        amounts = head.amounts
        if all(amounts[dim] <= left.whole[dim] for dim in _BOTH):
            return True
        if left.in_turn and all(left.some[dim] for dim in _BOTH if amounts[dim]):
            return True
        return all(amounts[dim] <= left.lent[dim] for dim in _BOTH) and self._is_within_below(head, mine)

    def _is_within_below(self, head: Candidate, mine: Side) -> bool:
        """Whether the same is so where its way parts from those of others below the same queue."""
        path = self._books.ledger.tree.path(head.first.queue)
        below = next((name for name, parent in pairwise(path) if parent == mine), None)
        return below is not None and self._is_within(head, below, str(mine))

    def _left_of(self, mine: Side, parent: str) -> Left | None:
        # Anew with what is due, if that is worked out anew.
        self._shares()
        if not self._books.ledger.tree.nodes[parent].children:
            return self._worked_out(mine, self._of(parent), used=self._held(parent).get(mine[1], _NOTHING))
        used, known = tuple(self._books.ledger.accounts[str(mine)].used), self._memory.dues.left.get(mine)
        if known and known[0] == used:
            return known[1]
        left = self._worked_out(mine, self._of(parent), used=used)
        if left is not None:
            self._memory.dues.left[mine] = used, left
        return left

    @staticmethod
    def _worked_out(mine: Side, siblings: Mapping[Side, Sibling], *, used: Sequence[int]) -> Left | None:
        """By what it uses now; None if its namespace is at home elsewhere since its turn was looked at."""
        if (me := siblings.get(mine)) is None:
            return None
        rivals = [one for one in siblings.values() if one.priority <= me.priority and one.due_part]
        # Rounded once: else whether equals are in turn would hang on who is counted first.
        lately, due = fsum(one.lately for one in rivals), fsum(one.due_part for one in rivals)
        left = [me.due[dim] - used[dim] for dim in _BOTH]
        in_turn = me.lately * due <= me.due_part * lately
        return Left(
            whole=[floor(part) for part in left],
            lent=[floor(me.due[dim] - me.used_of_due[dim]) for dim in _BOTH],
            some=[part > 0 for part in left],
            in_turn=in_turn,
        )

    def _of(self, parent: str) -> Mapping[Side, Sibling]:
        children = self._books.ledger.tree.nodes[parent].children
        known = self._memory.dues.siblings if children else self._users_known
        if parent not in known:
            known[parent] = {child: self._queue(child) for child in children} if children else self._users(parent)
        return known[parent]

    def _queue(self, name: str) -> Sibling:
        account, shares = self._books.ledger.accounts[name], self._shares()
        due, below = [share[name] for share in shares], account.node.children or (name,)
        accounts = self._books.ledger.accounts
        return Sibling(
            used_of_due=tuple(
                sum((min(share[one], Fraction(accounts[one].used[dim])) for one in below), Fraction())
                for dim, share in enumerate(shares)
            ),
            due=tuple(due),
            due_part=self._part([max(Fraction(), due[dim] - account.node.due[dim]) for dim in _BOTH]),
            lately=self._part(self._books.usage.of(name, now=self._now)),
            priority=account.node.priority,
        )

    def _users(self, queue: str) -> Mapping[Side, Sibling]:
        line, holds = self._lines.get(queue), self._held(queue)
        asked = {user: line.could_have(user) for user in line.users()} if line else {}
        used = {user: holds.get(user, _NOTHING) for user in sorted(holds.keys() | asked.keys())}
        shares = [
            equal_shares(share[queue], needs={user: used[user][dim] + asked.get(user, _NOTHING)[dim] for user in used})
            for dim, share in enumerate(self._shares())
        ]
        found: dict[Side, Sibling] = {}
        for user, held in used.items():
            due, who = tuple(share[user] for share in shares), (queue, user)
            lately = self._part(self._books.users.of(who, now=self._now))
            found[who] = Sibling(used_of_due=tuple(held), due=due, due_part=self._part(due), lately=lately)
        return found

    def _held(self, queue: str) -> Mapping[str, Sequence[int]]:
        return self._books.users.held_in(queue)

    def _shares(self) -> Dues:
        """What each queue is due, of both dimensions."""
        ledger = self._books.ledger

        def work_out() -> Dues:
            reach = self._cards.reach()
            return [due_of(ledger, dimension=dim, reach=reach) for dim in _BOTH]

        return self._memory.dues.due(ledger.tree, now=self._now, work_out=work_out)

    def _part(self, amounts: Sequence[float | Fraction]) -> float:
        """The larger part of all there is."""
        return max(float(amounts[dim]) / max(1, self._books.capacity[dim]) for dim in _BOTH)
