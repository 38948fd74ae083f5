"""Who is shown to a cluster autoscaler: pods of queues with `autoscale` that are within their quota and have no room.

Theory of operation. Who is shown has a lifted gate and nothing else: it stands in line with all others in every round,
uncharged, and gets room when its turn comes like anybody. Only when all who have room are let in is it found who of
the rest is shown. While that is found they are charged, so that no more is shown than quota allows, at any level. So
who is shown takes no place in the line, no share, no quota, and no card from anybody; nor does it lose patience, for
which nodes or quota would be kept for it: a node is to come.

A gate that is lifted stays so, whoever comes first in another round. So those are charged first of all who have none
any more: whose time runs, in the order in which they were shown (`waiting/showings.py`), then who has lost a turn. For
whom there is no quota beside them any more is put out, and is charged all the same as long as its time runs: new ones,
in the order of their turns, are shown only in what all that leaves. So no gate is lifted by quota that another pod was
shown by in this round or any before, before that one's time is over.

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
from aliquot_scheduler.queues.waiting.order import Order, Shares
from aliquot_scheduler.queues.waiting.showings import Showings, World
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, still_needed, summed

MOST_SHOWN = 100

# What is asked, by whose showing in vain others need not be shown: a shape in a queue, of a group also how it starts.
_Asked = tuple[str, int, tuple[int, str] | None]


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
    """One look at those who found no room in a round; whoever is yielded the caller charges before it goes on."""

    def __init__(
        self,
        queues: Sequence[str],
        *,
        books: Books,
        hall: Hall,
        showings: Showings,
        without: Without,
        world: World,
        now: float,
    ) -> None:
        self._queues = queues
        self._books = books
        self._hall = hall
        self._showings = showings
        self._without = without
        self._world = world
        self._now = now
        self._rules = Rules(ledger=books.ledger, cards=_EndlessCards(books.ledger.tree))
        self._shown: Counter[str] = Counter()
        self._passed: set[tuple[str, object]] = set()
        self._out: list[Candidate] = []
        # How often who asks so was shown in vain; and until when nobody else is who asks it.
        self._in_vain: dict[_Asked, tuple[int, float]] = {}
        for uid, showing in showings.over().items():
            if waiter := hall.find(uid):
                times, again = self._in_vain.get(_asked(waiter), (0, 0.0))
                self._in_vain[_asked(waiter)] = max(times, showing.times), max(again, showing.again)

    def without_gates(self) -> Iterator[Candidate]:
        """Who is shown of those whose gates are lifted; first those whose time runs, as they were shown."""
        running = [waiter for waiter in map(self._hall.standing, self._showings.in_order()) if waiter]
        for waiter in (*running, *self._lost()):
            queue = waiter.queue
            if queue not in self._queues or not self._hall.stands(waiter.uid) or self._shown[queue] >= MOST_SHOWN:
                continue
            candidate = self._whole(waiter)
            if candidate is None or self._hall.is_never(waiter):
                continue
            shown, refusal = self._admissible(candidate)
            if refusal is None:
                self._shown[queue] += len(shown.members)
                yield shown
            elif self._showings.runs(waiter.uid):
                self._out.append(candidate)

    def put_out(self) -> Iterator[Waiter]:
        """For whom there is no quota any more though their time runs."""
        out = {member.uid: member for candidate in self._out for member in candidate.members}
        yield from (waiter for waiter in out.values() if self._hall.stands(waiter.uid))

    def new(self) -> Iterator[Candidate]:
        """Who is shown beside all those."""
        shares = self._books.shares(now=self._now)
        firsts = {name: partial(self._first, name, shares) for name in self._queues}
        for candidate in Order(ledger=self._books.ledger, shares=shares, candidates=firsts):
            queue = candidate.first.queue
            shown, refusal = self._admissible(candidate)
            if refusal is not None:
                self._passed.add((queue, candidate.first.mark))
                continue
            self._shown[queue] += len(candidate.members)
            yield shown
            shares.changed(queue)

    def times(self, waiter: Waiter) -> int:
        """Which time it is that who asks so is shown, beginning with one; who is shown in another's place counts on."""
        return max(self._showings.times(waiter.uid), self._in_vain.get(_asked(waiter), (0, 0.0))[0]) + 1

    def _lost(self) -> list[Waiter]:
        """Who has no gate, and no time of its own: its turn had room, and led to nothing."""
        lost = (uid for uid in self._showings.lifted if uid not in self._showings)
        return sorted(filter(None, map(self._hall.standing, lost)), key=lambda one: one.place)

    def _whole(self, waiter: Waiter) -> Candidate | None:
        """With those of its gang that it takes; None if they have not all been shown."""
        if waiter.group is None:
            return Candidate(members=(waiter,), amounts=waiter.amounts)
        mates = [one for one in self._hall.lines[waiter.queue].mates(waiter) if self._is_out_already(one)]
        needed = still_needed(mates[0], let_in=self._books.let_in) if mates else 1
        if len(mates) < needed:
            return None
        members = tuple(mates[:needed])
        return Candidate(members=members, amounts=summed(members))

    def _is_out_already(self, waiter: Waiter) -> bool:
        showings, uid = self._showings, waiter.uid
        return showings.runs(uid) or (uid in showings.lifted and uid not in showings)

    def _admissible(self, candidate: Candidate) -> tuple[Candidate, Refusal | None]:
        """The candidate, kept off models of which its queue has none for it; or why it is within no quota."""
        dimensions = self._books.ledger.tree.dimensions
        return admissible(candidate, rules=self._rules, dimensions=dimensions, without=self._without)

    def _first(self, queue: str, shares: Shares) -> Candidate | None:
        line = self._hall.lines.get(queue)
        if line is None or self._shown[queue] >= MOST_SHOWN:
            return None
        for user in shares.in_order(queue, line.users()):
            for head in line.heads(user, let_in=self._books.let_in):
                if (queue, head.first.mark) in self._passed or self._hall.is_never(head.first):
                    continue
                if all(map(self._may_be_shown, head.members)):
                    return head
        return None

    def _may_be_shown(self, waiter: Waiter) -> bool:
        """Not as long as the same was shown in vain; nor again by itself before anything has changed."""
        if self._showings.runs(waiter.uid):
            return True
        _, again = self._in_vain.get(_asked(waiter), (0, self._now))
        return again <= self._now and self._showings.may_be_shown(waiter.uid, world=self._world)


def _asked(waiter: Waiter) -> _Asked:
    group = waiter.group
    return waiter.queue, waiter.number, (group.minimum, group.topology) if group else None
