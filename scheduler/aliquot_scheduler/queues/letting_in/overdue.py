"""Who is shown to a cluster autoscaler though others use the quota: who has long awaited a node that is yet to come.

No quota is kept for it: until its node is there nobody could use that. So below a limit that others fill without end it
would never be within quota, never be shown, and no node would ever come. Once it has waited for the time of patience it
is shown by what the limits leave beside all who are shown, whatever is in use: it is put out from the beginning, and
charged as whoever is put out. When the node is there quota is kept for it as for any head. What an autoscaler brings
stays within limits by that: no limit is shown twice at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import add

from aliquot_scheduler.queues.judging.enrolment import Enrolment
from aliquot_scheduler.queues.letting_in.showing import MOST_SHOWN
from aliquot_scheduler.queues.letting_in.showing_order import ShownShares
from aliquot_scheduler.queues.waiting.asked import Asker
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.order import Order
from aliquot_scheduler.queues.waiting.showings import Showings
from aliquot_scheduler.queues.waiting.users import Whose
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, asked_by


class LongAwaited:
    """Since when each awaits a node, as far as this leader has seen it."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._since: Mapping[Asker, float] = {}

    def overdue(self, awaiting: Mapping[Asker, str], *, now: float) -> set[str]:
        """Who of these have waited long enough; the first pods, by UID."""
        self._since = {who: self._since.get(who, now) for who in awaiting}
        return {uid for who, uid in awaiting.items() if now - self._since[who] >= self._patience}


class Overdue:
    """One look at those below one uppermost queue, once it is found who is shown by quota."""

    def __init__(
        self,
        queues: Sequence[str],
        *,
        showing: Iterable[Waiter],
        books: Books,
        hall: Hall,
        showings: Showings,
        enrolment: Enrolment,
        shares: ShownShares,
        now: float,
    ) -> None:
        """`queues` are those that show pods; `showing` are all whose time runs, and who are shown since this look."""
        self._queues = queues
        self._books = books
        self._hall = hall
        self._showings = showings
        self._enrolment = enrolment
        self._shares = shares
        self._now = now
        # By queue what is shown there and below it.
        self._taken: dict[str, list[int]] = {}
        self._number = 0
        self._showing = {one.uid: one for one in showing}
        for waiter in self._showing.values():
            self._take(waiter)
        self._passed: set[str] = set()

    def found(self, overdue: Collection[str]) -> list[Waiter]:
        """Who of these is shown beside them, with those of their groups."""
        found: list[Waiter] = []
        heads = self._heads(overdue)
        lines = {queue: partial(self._first, queue, heads) for queue in sorted({queue for queue, _ in heads})}
        for candidate in Order(ledger=self._books.ledger, shares=self._shares, candidates=lines):
            self._passed.add(candidate.uid)
            if self._is_within_limits(candidate):
                found += candidate.members
                for member in candidate.members:
                    self._take(member)
                    self._shares.shown((member.user, self._enrolment.charge(member)))
        return found

    def _heads(self, overdue: Collection[str]) -> Mapping[Whose, Sequence[Candidate]]:
        """Of each user, of those who may come now."""
        standing = filter(None, map(self._hall.standing, overdue))
        found = dict[Whose, Sequence[Candidate]]()
        for queue, user in sorted({one.whose for one in standing if one.queue in self._queues}):
            heads = self._hall.lines[queue].heads(user, runs=self._books.runs)
            found[queue, user] = [one for one in heads if one.uid in overdue and self._may_be_shown(one)]
        return found

    def _may_be_shown(self, candidate: Candidate) -> bool:
        """Whether none of them is shown already, or was in vain lately."""
        members = candidate.members
        return not any(one.uid in self._showing or self._showings.pauses(one, now=self._now) for one in members)

    def _first(self, queue: str, heads: Mapping[Whose, Sequence[Candidate]]) -> Candidate | None:
        if self._number >= MOST_SHOWN:
            return None
        users = [user for where, user in heads if where == queue]
        in_order = (head for user in self._shares.in_order(queue, users) for head in heads[queue, user])
        return next((head for head in in_order if head.uid not in self._passed), None)

    def _is_within_limits(self, candidate: Candidate) -> bool:
        tree, least = self._books.ledger.tree, asked_by(candidate.members).least
        for name in tree.path(candidate.first.queue):
            taken = self._taken.get(name, [0] * len(least))
            ceiling = tree.nodes[name].ceiling
            if any(amount and taken[dim] + amount > ceiling[dim] for dim, amount in enumerate(least)):
                return False
        return True

    def _take(self, waiter: Waiter) -> None:
        charge = self._enrolment.charge(waiter)
        self._number += 1
        for name in self._books.ledger.tree.path(charge.queue):
            so_far = self._taken.setdefault(name, [0] * len(charge.amounts))
            so_far[:] = map(add, so_far, charge.amounts)
