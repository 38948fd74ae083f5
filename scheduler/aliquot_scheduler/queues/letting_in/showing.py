"""Who is shown to a cluster autoscaler: pods of queues with `autoscale` that are within their quota and have no room.

Theory of operation. Who is shown has a lifted gate and nothing else: it stands in line with all others in every round,
uncharged, and gets room when its turn comes like anybody. Only when all who have room are let in are the rest shown, in
the order of their turns, as far as quota then allows: while that is found they are charged, so that no more is shown
than limits allow. So who is shown takes no place in the line, no share, no quota, and no card from anybody.

Without room is whoever would be let in if there were no end of cards. So who waits only because free cards are held
back for guarantees, or kept idle by reservations, is shown: the next node is for it. Who is kept out under a ceiling,
by a limit or by what is held back there for others, is not: more cards would change nothing for it.

All of them are put down anew in each round, so of one queue no more than a hundred are shown at a time (0.2 ms each):
an autoscaler needs no longer list to begin with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from aliquot_scheduler.queues.judging.cards import Stock
from aliquot_scheduler.queues.judging.elsewhere import Without, admissible
from aliquot_scheduler.queues.judging.rules import Refusal, Rules
from aliquot_scheduler.queues.said.tree import UNLIMITED, Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Candidate
from aliquot_scheduler.queues.waiting.order import Order

MOST_SHOWN = 100


def growing(hall: Hall, tree: Tree) -> list[str]:
    """The queues of which somebody might be shown; nearly always there are none."""
    nodes = tree.nodes
    return [name for name in hall.lines if nodes[name].spec.autoscale and not nodes[name].stop]


class _EndlessCards:
    """As many of each model as anybody asks for."""

    def __init__(self, tree: Tree) -> None:
        endless = (UNLIMITED,) * tree.dimensions.cards
        self._stock = Stock(capacity=endless, free=endless)

    def stock(self) -> Stock:
        """Always the same."""
        return self._stock


class Showing:
    """One look at those who found no room in a round."""

    def __init__(self, queues: Sequence[str], *, books: Books, hall: Hall, without: Without, now: float) -> None:
        self._queues = queues
        self._books = books
        self._hall = hall
        self._shares = books.shares(now=now)
        self._without = without
        self._rules = Rules(ledger=books.ledger, cards=_EndlessCards(books.ledger.tree))
        self._shown: Counter[str] = Counter()
        self._passed: set[tuple[str, object]] = set()

    def candidates(self) -> Iterator[Candidate]:
        """Who is to be shown; the caller charges it before asking for the next."""
        firsts = {name: partial(self._first, name) for name in self._queues}
        for candidate in Order(ledger=self._books.ledger, shares=self._shares, candidates=firsts):
            queue = candidate.first.queue
            shown, refusal = self._admissible(candidate)
            if refusal is not None:
                self._passed.add((queue, candidate.first.mark))
                continue
            self._shown[queue] += len(candidate.members)
            yield shown
            self._shares.changed(queue)

    def _admissible(self, candidate: Candidate) -> tuple[Candidate, Refusal | None]:
        """The candidate, kept off models of which its queue has none for it; or why it is within no quota."""
        dimensions = self._books.ledger.tree.dimensions
        return admissible(candidate, rules=self._rules, dimensions=dimensions, without=self._without)

    def _first(self, queue: str) -> Candidate | None:
        line = self._hall.lines.get(queue)
        if line is None or self._shown[queue] >= MOST_SHOWN:
            return None
        for user in self._shares.in_order(queue, line.users()):
            for head in line.heads(user, let_in=self._books.let_in):
                if (queue, head.first.mark) not in self._passed and not self._hall.is_never(head.first):
                    return head
        return None
