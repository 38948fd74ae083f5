"""Who is shown to a cluster autoscaler: pods of queues with `autoscale` that are within their quota and have no room.

Theory of operation. Who is shown has a lifted gate and nothing else: it stands in line with all others in every round,
uncharged, and gets room when its turn comes like anybody. Only when all who have room are let in is it found who of
the rest is shown. While that is found they are charged, so that no more is shown than quota allows, at any level. So
who is shown takes no place in the line, no share, no quota, and no card from anybody; nor does it lose patience, for
which nodes or quota would be kept for it: a node is to come.

A gate that is lifted stays so, whoever comes first in another round. So those are charged first of all whose time runs,
in the order in which they were shown (`waiting/showings.py`). For whom there is no quota beside them any more is put
out, and is charged all the same as long as its time runs, where it was shown, wherever it waits by now: new ones are
shown only in what all that leaves, least shown first (`showing_order.py`). So no gate is lifted by quota that another
pod was shown by in this round or any before, before that one's time is over. Of one user's those come first who have no
gate any more since they lost a turn; before others' they do not, or who loses turns would be shown before all.

Without room is whoever would be let in if there were no end of cards. So who waits only because free cards are held
back for guarantees, or kept idle by reservations, is shown: the next node is for it. Who is kept out under a ceiling,
by a limit or by what is held back there for others, is not: more cards would change nothing for it.

All of them below one uppermost queue are looked at when anything below that has changed, so beside a hundred who are
shown there no gate is lifted: an autoscaler needs no longer list to begin with. Nearly always there is quota for all of
them together, and who is of no group need not be judged one by one, nor leave its line: a look at a hundred takes 2 ms
and not 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain

from aliquot_scheduler.queues.judging.cards import Stock
from aliquot_scheduler.queues.judging.elsewhere import admissible
from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.judging.rules import Refusal, Rules
from aliquot_scheduler.queues.letting_in.apart import Apart
from aliquot_scheduler.queues.letting_in.showing_order import ShownShares
from aliquot_scheduler.queues.said.tree import UNLIMITED, Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.line import Heads, Line
from aliquot_scheduler.queues.waiting.order import Order
from aliquot_scheduler.queues.waiting.showings import Showings
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Waiter, of_each_user, summed

MOST_SHOWN = 100


class _EndlessCards:
    """As many of each model as anybody asks for."""

    def __init__(self, tree: Tree) -> None:
        endless = (UNLIMITED,) * tree.dimensions.cards
        self._stock = Stock(capacity=endless, free=endless)

    def stock(self) -> Stock:
        """Always the same."""
        return self._stock


class Showing:
    """One look at those below one uppermost queue who found no room in a round."""

    def __init__(
        self,
        queues: Sequence[str],
        *,
        running: Sequence[Waiter],
        books: Books,
        hall: Hall,
        showings: Showings,
        enrolment: Enrolment,
        apart: Apart,
        shares: ShownShares,
        now: float,
    ) -> None:
        """`queues` are those that show pods, and `running` whose time runs, as they are charged, first shown first."""
        self._queues = queues
        self._running = running
        self._books = books
        self._hall = hall
        self._showings = showings
        self._enrolment = enrolment
        self._apart = apart
        self._shares = shares
        self._now = now
        self._rules = Rules(ledger=books.ledger, cards=_EndlessCards(books.ledger.tree))
        self._passed: set[tuple[str, object]] = set()
        # Groups that were shown and can't be now: each of their thousands would ask for all of them.
        self._put_out: set[tuple[str, GangKey | None]] = set()
        self._shown: dict[str, Waiter] = {}
        # The candidates of each user but for those who are shown together.
        self._others: dict[tuple[str, str], tuple[Heads, Sequence[Candidate]]] = {}

    def found(self) -> list[Waiter]:
        """Who is shown, each kept off models where it has to be."""
        again = self._again()
        if self._apart.have_quota(again):
            self._show_all_again(again)
        else:
            for waiter in again:
                self._show_again(waiter)
        if len(self._shown) < MOST_SHOWN:
            self._show_more()
        self._apart.end()
        return list(self._shown.values())

    def _again(self) -> list[Waiter]:
        """Whose time runs, and who may be shown if there is quota."""
        stand = filter(None, map(self._as_it_stands, self._running))
        return [one for one in stand if one.queue in self._queues and not self._hall.is_never(one)]

    def _show_all_again(self, waiters: Sequence[Waiter]) -> None:
        """For all of them there is quota: they are charged only if more may be shown."""
        lone, grouped = ([one for one in waiters if bool(one.group) == of_group] for of_group in (False, True))
        self._shown |= {waiter.uid: waiter for waiter in lone}
        for waiter in grouped:
            self._show_again(waiter)
        if len(self._shown) < MOST_SHOWN:
            self._apart.show_together(lone)

    def _show_more(self) -> None:
        """New ones, beside those who are shown, and whose time runs though there is no quota for them."""
        for holder in self._running:
            if holder.uid not in self._shown:
                self._apart.hold(holder)
        for candidate in self._new():
            self._show(candidate)

    def _as_it_stands(self, holder: Waiter) -> Waiter | None:
        """One whose time runs, if it waits where it was shown, for what it was."""
        waiter = self._hall.standing(holder.uid)
        return waiter if waiter and self._showings.is_as_shown(waiter) else None

    def _show_again(self, waiter: Waiter) -> None:
        group = (waiter.queue, waiter.gang) if waiter.group else None
        if waiter.uid in self._shown or group in self._put_out:
            return
        candidate = self._whole(waiter)
        shown, refusal = self._admissible(candidate) if candidate else (None, None)
        if shown and refusal is None:
            self._show(shown)
        elif group:
            self._put_out.add(group)

    def _show(self, candidate: Candidate) -> None:
        self._apart.show(candidate)
        self._shown |= {member.uid: member for member in candidate.members}

    def _whole(self, waiter: Waiter) -> Candidate | None:
        """With those of its gang that it takes; None if they have not all been shown."""
        if waiter.group is None:
            return Candidate(members=(waiter,), amounts=waiter.amounts)
        mates = [one for one in self._hall.lines[waiter.queue].mates(waiter) if self._is_out_already(one)]
        needed = self._books.runs.still_needed(mates[0]) if mates else 1
        if len(mates) < needed:
            return None
        members = tuple(mates[:needed])
        return Candidate(members=members, amounts=summed(members))

    def _is_out_already(self, waiter: Waiter) -> bool:
        return self._has_lost(waiter.uid) or self._showings.is_as_shown(waiter)

    def _has_lost(self, uid: str) -> bool:
        """Whether it has no gate, and no time of its own: its turn had room, and led to nothing."""
        return uid in self._showings.lifted and uid not in self._showings

    def _admissible(self, candidate: Candidate) -> tuple[Candidate, Refusal | None]:
        """The candidate, kept off models of which its queue has none for it; or why it is within no quota."""
        dimensions = self._books.ledger.tree.dimensions
        return admissible(candidate, rules=self._rules, dimensions=dimensions, without=self._enrolment.without)

    def _new(self) -> Iterator[Candidate]:
        """Who is shown beside all those; each is charged by the caller before it goes on."""
        firsts = {name: partial(self._first, name) for name in self._queues if name in self._hall.lines}
        for candidate in Order(ledger=self._books.ledger, shares=self._shares, candidates=firsts):
            held = self._apart.without(candidate)
            shown, refusal = self._admissible(candidate)
            if refusal is not None:
                self._apart.hold_again(held)
                self._passed.add((candidate.first.queue, candidate.first.mark))
                continue
            for member in shown.members:
                if not self._showings.runs(member.uid):
                    self._shares.shown((member.user, self._enrolment.charge(member)))
            yield shown

    def _first(self, queue: str) -> Candidate | None:
        line = self._hall.lines.get(queue)
        if line is None or len(self._shown) >= MOST_SHOWN:
            return None
        for user in self._shares.in_order(queue, line.users()):
            for head in chain(self._lost_of(queue, user), self._heads(queue, line, user)):
                if (queue, head.first.mark) in self._passed or self._hall.is_never(head.first):
                    continue
                if all(map(self._may_be_shown, head.members)):
                    return head
        return None

    def _heads(self, queue: str, line: Line, user: str) -> Sequence[Candidate]:
        """A user's candidates; the same objects as long as nobody else is shown of them."""
        heads = line.heads(user, runs=self._books.runs)
        if not self._apart.together:
            return heads
        if (queue, user) not in self._others or self._others[queue, user][0] is not heads:
            self._others[queue, user] = heads, line.without(heads, self._apart.together)
        return self._others[queue, user][1]

    def _lost_of(self, queue: str, user: str) -> Iterator[Candidate]:
        """Of a user's who have lost turns those who are not shown yet."""
        for candidate in self._lost.get((queue, user), ()):
            if not any(member.uid in self._shown for member in candidate.members):
                yield candidate

    @cached_property
    def _lost(self) -> Mapping[Whose, Sequence[Candidate]]:
        """Who has lost turns and stands in a line, once all are shown whose time runs."""
        standing = filter(None, map(self._hall.standing, filter(self._has_lost, self._showings.lifted)))
        return {who: self._candidates(waiters) for who, waiters in of_each_user(standing).items()}

    def _candidates(self, waiters: Iterable[Waiter]) -> Sequence[Candidate]:
        """Of one user's; of a group that is whole all stand for one."""
        found = {candidate.uid: candidate for candidate in map(self._whole, waiters) if candidate}
        return list(found.values())

    def _may_be_shown(self, waiter: Waiter) -> bool:
        """Not while the time runs for which it was shown elsewhere; nor as long as the same was shown in vain."""
        if self._showings.runs(waiter.uid):
            return self._showings.is_as_shown(waiter)
        return not self._showings.pauses(waiter, now=self._now)
