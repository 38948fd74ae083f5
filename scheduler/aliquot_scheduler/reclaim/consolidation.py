"""Moves pods where the operator lets it be done (`queues.moves_per_hour`), and where it pays.

For whom: somebody whom the queues would let in, who finds no card free in one piece though there is enough in several;
or for nobody who waits (`draining.py`). It pays once the one that waits has waited for as much (percent of GPU times
seconds) as is lost by the moves: so no more is ever lost than was waited for already.

Who is moved: pods that may be sent away at all (`residents.py`), that somebody makes anew, that are in no group and
have run for ten minutes, of whose place kube-scheduler knows nothing that is not known here. One plan at a time, and
none while room is being made for owners. The budget grows from nothing when a leader begins, so that leaders who
follow each other quickly move no more than one would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.rules import Rules
from aliquot_scheduler.queues.room.clearings import Clearing, longest_grace
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.room.refuges import controller_of
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.order import Order, Shares
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.draining import Draining
from aliquot_scheduler.reclaim.foreseen import is_foreseen
from aliquot_scheduler.reclaim.moving import MovePlan, Mover
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget, Resident, Residents
from aliquot_scheduler.reclaim.returning import Returning

# For whom no move helps is looked at again after so long, and whoever was moved stays for the same time at least.
_COOLDOWN = 60.0
_LEAST_RUN = 600.0
# A search takes milliseconds, and nobody is answered meanwhile.
_MOST_LOOKED_AT = 8
# Of those who ask for memory alone.
_LEAST_PERCENT = 10
_HOUR = 3600.0


class Allowance:
    """How many may be moved now."""

    def __init__(self, *, per_hour: int) -> None:
        self._per_hour = per_hour
        self._left = 0.0
        self._seen: float | None = None

    def at(self, now: float) -> int:
        """At this instant."""
        grown = 0.0 if self._seen is None else (now - self._seen) * self._per_hour / _HOUR
        self._left, self._seen = min(float(self._per_hour), self._left + grown), now
        return int(self._left)

    def used(self, count: int) -> None:
        """So many are moved."""
        self._left -= count


class _Price(msgspec.Struct, frozen=True, kw_only=True):
    """What was lost at the least if others were moved for one of a shape; infinite where that can't be done."""

    lost: float
    until: float


class Consolidation:
    """Decides who is moved."""

    def __init__(self, *, queues: Queues, picture: Picture, reclaim: Reclaim, per_hour: int) -> None:
        self._queues = queues
        self._picture = picture
        self._reclaim = reclaim
        self._allowance = Allowance(per_hour=per_hour)
        self._draining = Draining(queues=queues, picture=picture)
        # Who is not looked at again until then (UIDs); and by shape: whoever wants it has to have waited for as much.
        self._vain: dict[str, float] = {}
        self._prices: dict[int, _Price] = {}

    def anybody(self, *, now: float) -> bool:
        """Whether there may be somebody to move."""
        register, allowed = self._queues.register, self._allowance.at(now)
        if register.books.ledger.tree.queueless or len(register.clearings) or len(register.refuges):
            return False
        self._vain = {uid: until for uid, until in self._vain.items() if until > now}
        self._prices = {number: price for number, price in self._prices.items() if price.until > now}
        if self._draining.anything(now=now, allowed=allowed):
            return True
        return allowed > 0 and any(True for _ in self._queues_that_wait(now))

    @property
    def staying(self) -> Mapping[str, str]:
        """Who lies on a degraded GPU and stays there (UIDs), and why."""
        return self._draining.staying

    def decide(self, *, now: float, wall: float, budgets: Sequence[Budget] = ()) -> list[Clearing]:
        """Decide for one that waits, or else for nobody who does; what is decided stands in the register."""
        register = self._queues.register
        residents = self._reclaim.residents(now=now, wall=wall, budgets=budgets, may_go=_may_be_moved)
        allowed = self._allowance.at(now)
        clearing = self._for_one_that_waits(residents, now=now) if allowed else None
        if clearing is not None:
            clearing = clearing.begun(now=now, wall=wall)
            register.making_room.begin(clearing)
            return [clearing]
        self._allowance.used(self._draining.decide(residents, now=now, allowed=allowed))
        return []

    def _for_one_that_waits(self, residents: Residents, *, now: float) -> Clearing | None:
        books, cards = self._queues.books, self._queues.register.cards
        returning = Returning(register=self._queues.register, picture=self._picture, residents=residents)
        mover = Mover(picture=self._picture, cards=cards, residents=residents, returning=returning)
        rules = Rules(ledger=books.ledger, cards=cards)
        for candidate in islice(self._candidates(now), _MOST_LOOKED_AT):
            self._vain[candidate.uid] = now + _COOLDOWN
            if rules.refusal(candidate) is not None:
                continue
            waited = self._waited(candidate, now=now)
            plan = mover.plan(candidate, most=self._allowance.at(now), pays=waited)
            if not isinstance(plan, MovePlan):
                self._prices[candidate.number] = _Price(lost=plan, until=now + _COOLDOWN)
                continue
            self._allowance.used(len(plan.moves))
            who = tuple(move.who.waiter for move in plan.moves)
            return Clearing(
                candidate=candidate,
                places=(plan.place,),
                victims=who,
                moves=tuple(move.to for move in plan.moves),
                covered=residents.covered(move.who for move in plan.moves),
                until=now + longest_grace(who, most=self._queues.register.clearings.max_grace) + OVERDUE,
            )
        return None

    # --- who waits ---------------------------------------------------------------------------------------------------
    def _candidates(self, now: float) -> Iterator[Candidate]:
        """In the order of turns."""
        books = self._queues.books
        shares = books.shares(now=now)
        lines = {queue: partial(self._next, queue, shares, now) for queue in sorted(self._queues_that_wait(now))}
        yield from Order(ledger=books.ledger, shares=shares, candidates=lines)

    def _queues_that_wait(self, now: float) -> Iterator[str]:
        register = self._queues.register
        nodes = register.books.ledger.tree.nodes
        for queue, line in register.hall.lines.items():
            if not nodes[queue].stop and any(
                self._may_ask(one, now=now) for user in line.users() for one in self._of(queue, user)
            ):
                yield queue

    def _next(self, queue: str, shares: Shares, now: float) -> Candidate | None:
        line = self._queues.register.hall.lines.get(queue)
        users = shares.in_order(queue, line.users()) if line else ()
        return next((one for user in users for one in self._of(queue, user) if self._may_ask(one, now=now)), None)

    def _of(self, queue: str, user: str) -> Sequence[Candidate]:
        register = self._queues.register
        heads = register.hall.lines[queue].heads(user, runs=register.books.runs)
        # For who is shown to an autoscaler a node is to come.
        return [head for head in heads if head.first.uid not in register.showings.shown]

    def _may_ask(self, candidate: Candidate, *, now: float) -> bool:
        if candidate.uid in self._vain:
            return False
        price = self._prices.get(candidate.number)
        if price is not None and self._waited(candidate, now=now) < price.lost:
            return False
        alone = len(candidate.members) == 1 and candidate.first.group is None
        return alone and is_foreseen(candidate.first) and not self._reclaim.why_paused(candidate, now=now)

    def _waited(self, candidate: Candidate, *, now: float) -> float:
        """As much as was waited for, in percent-seconds."""
        since = self._queues.register.joined.get(candidate.uid, now)
        return max(_LEAST_PERCENT, candidate.amounts[COMPUTE]) * (now - since)


def _may_be_moved(one: Resident, ran: float) -> bool:
    waiter = one.waiter
    return ran >= _LEAST_RUN and waiter.group is None and bool(controller_of(waiter.pod)) and is_foreseen(waiter)
