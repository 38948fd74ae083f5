"""One sweep over all candidates in their order: each is let in, or passed over until the next sweep.

What no card was found for is not asked again until the cards change, and who may fit nowhere is not asked for at all.
A sweep that has searched too often in vain is broken off, since nobody else is answered meanwhile; the next one goes on
where it ended, whatever has changed: it asks for none of those again for whom it has searched already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aliquot_scheduler.deciding.first_come import MOST_IN_VAIN, Promising
from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.queues.books import Books
from aliquot_scheduler.queues.cards import Cards
from aliquot_scheduler.queues.hall import Hall
from aliquot_scheduler.queues.line import Candidate
from aliquot_scheduler.queues.order import Order
from aliquot_scheduler.queues.rules import Cause, Refusal, Rules

# Which of a user's candidates.
_Mark = tuple[str, Any]


class Memory:
    """What is known from one sweep to the next."""

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._refused: set[Any] = set()
        self._refused_at = -1
        self._broken_off = False
        # Since when the head of a line is refused, by the UID of its first pod.
        self._since: dict[str, float] = {}

    def begin(self, *, version: int) -> None:
        """A sweep begins, or goes on."""
        if not self._broken_off and version != self._refused_at:
            self._refused.clear()

    def end(self, *, version: int, broken_off: bool) -> None:
        """What was refused is so for these cards, unless some of it was for others before."""
        self._refused_at = -1 if self._broken_off else version
        self._broken_off = broken_off

    def everything_changed(self) -> None:
        """Nothing that was refused need be so any more."""
        self._refused.clear()
        self._broken_off = False

    def refuse(self, candidate: Candidate) -> None:
        """No card was found."""
        self._refused.add(candidate.shape)

    def is_refused(self, candidate: Candidate) -> bool:
        """Whether no card was found for its like."""
        return candidate.shape in self._refused

    def head_refused(self, uid: str, *, now: float) -> None:
        """A head of a line is passed over."""
        self._since.setdefault(uid, now)

    def forget(self, uid: str) -> None:
        """It is a head no more."""
        self._since.pop(uid, None)

    def is_impatient(self, candidate: Candidate, *, now: float) -> bool:
        """Whether it was passed long enough."""
        since = self._since.get(candidate.first.uid)
        return since is not None and now - since >= self._patience


class Sweep:
    """One sweep; `take_back` gives up what was promised to a pod of a gang that is not let in after all."""

    def __init__(
        self,
        *,
        books: Books,
        hall: Hall,
        cards: Cards,
        memory: Memory,
        promising: Promising,
        take_back: Callable[[str], None],
        now: float,
    ) -> None:
        self._books = books
        self._hall = hall
        self._cards = cards
        self._memory = memory
        self._promising = promising
        self._take_back = take_back
        self._now = now
        self._rules = Rules(ledger=books.ledger, cards=cards)
        self._shares = books.shares(now=now)
        self._in_vain = 0
        nodes = books.ledger.tree.nodes
        self._passed: dict[str, set[_Mark]] = {queue: set() for queue in hall.lines if not nodes[queue].stop}

    def let_in(self) -> Iterator[tuple[Candidate, list[Promise]]]:
        """Who is let in, with the room that is kept; the caller books it before asking for the next."""
        self._memory.begin(version=self._cards.version)
        candidates = {queue: partial(self._next, queue) for queue in self._passed}
        try:
            for candidate in Order(ledger=self._books.ledger, shares=self._shares, candidates=candidates):
                refusal = self._rules.refusal(candidate)
                promises = self._promised(candidate) if refusal is None else []
                if promises:
                    yield candidate, promises
                    self._shares.changed(candidate.first.queue)
                    self._rules.let_in()
                else:
                    self._pass_over(candidate, refusal)
                if self._in_vain >= MOST_IN_VAIN:
                    return
        finally:
            self._memory.end(version=self._cards.version, broken_off=self._in_vain >= MOST_IN_VAIN)

    def _next(self, queue: str) -> Candidate | None:
        """The first of a line that was not passed over; who finds no card is so at once, if it has patience."""
        line = self._hall.lines.get(queue)
        users = line.users() if line else []
        for user in sorted(users, key=lambda user: (self._shares.of_user(queue, user), user)):
            for candidate in line.heads(user, let_in=self._books.let_in) if line else ():
                if (user, candidate.shape) in self._passed[queue]:
                    continue
                if self._may_fit(candidate) or self._memory.is_impatient(candidate, now=self._now):
                    return candidate
                self._remember(candidate)
        return None

    def _may_fit(self, candidate: Candidate) -> bool:
        return not self._memory.is_refused(candidate) and self._cards.may_fit(candidate.first.demand)

    def _promised(self, candidate: Candidate) -> list[Promise]:
        """Room for all of them, or for none."""
        if not self._may_fit(candidate):
            return []
        promises: list[Promise] = []
        for member in candidate.members:
            promise = self._promising(member.pod, member.demand)
            if promise is None:
                for made in promises:
                    self._take_back(made.pod.metadata.uid)
                self._in_vain += 1
                self._memory.refuse(candidate)
                return []
            promises.append(promise)
        return promises

    def _pass_over(self, candidate: Candidate, refusal: Refusal | None) -> None:
        self._remember(candidate)
        if self._memory.is_impatient(candidate, now=self._now):
            self._rules.refuses_for(candidate, refusal or Refusal(cause=Cause.CARDS))

    def _remember(self, candidate: Candidate) -> None:
        """Not in this sweep any more; the first of a line that is passed over is its head."""
        passed = self._passed[candidate.first.queue]
        if not passed:
            self._memory.head_refused(candidate.first.uid, now=self._now)
        passed.add((candidate.first.user, candidate.shape))
