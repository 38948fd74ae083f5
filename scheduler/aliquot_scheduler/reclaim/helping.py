"""Moves pods for one that waits: whom the queues would let in, and who finds no card free in one piece but in several.

It pays once the one that waits has waited for as much (percent of GPU times seconds) as is lost by the moves: so no
more is ever lost than was waited for already. One plan at a time, and none while room is being made for owners. Of a
plan that was cut off when some had gone (its leader died, or one was kept) the rest is decided anew for the same one:
else it would wait until nobody keeps room any more for those who went.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import msgspec

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.rules import Rules
from aliquot_scheduler.queues.room.clearings import Clearing, longest_grace
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.order import Order, Shares
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.allowance import Allowance
from aliquot_scheduler.reclaim.foreseen import is_foreseen
from aliquot_scheduler.reclaim.look import Look, is_anybody_on_the_way
from aliquot_scheduler.reclaim.moving import MovePlan, Mover
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Residents
from aliquot_scheduler.reclaim.returning import Returning

# For whom no move helps is looked at again after so long, and whoever was moved stays for the same time at least.
_COOLDOWN = 60.0
# A search takes milliseconds, and nobody is answered meanwhile.
_MOST_LOOKED_AT = 8
# Of those who ask for memory alone.
_LEAST_PERCENT = 10


class _Price(msgspec.Struct, frozen=True, kw_only=True):
    """What was lost at the least if others were moved for one of a shape; infinite where that can't be done."""

    lost: float
    until: float


class Helping:
    """Decides who is moved for whom."""

    def __init__(self, *, queues: Queues, picture: Picture, reclaim: Reclaim, allowance: Allowance) -> None:
        self._queues = queues
        self._picture = picture
        self._reclaim = reclaim
        self._allowance = allowance
        # Who is not looked at again until then (UIDs); and by shape: whoever wants it has to have waited for as much.
        self._vain: dict[str, float] = {}
        self._prices: dict[int, _Price] = {}
        # By which shapes have those numbers.
        self._cards = queues.register.cards

    def anything(self, *, now: float) -> bool:
        """Whether somebody may be helped."""
        register, allowed = self._queues.register, self._allowance.at(now)
        if not allowed or register.books.ledger.tree.queueless:
            return False
        if is_anybody_on_the_way(register) and not self._cut_off():
            return False
        self._vain = {uid: until for uid, until in self._vain.items() if until > now}
        if register.cards is not self._cards:
            self._cards = register.cards
            self._prices.clear()
        self._prices = {number: price for number, price in self._prices.items() if price.until > now}
        return any(True for _ in self._queues_that_wait(now))

    def _cut_off(self) -> str:
        """For whom some have gone by a plan of which no more is carried out (its UID), if for one alone."""
        register = self._queues.register
        whose = {refuge.whose for refuge in register.refuges if not refuge.drains}
        is_one = len(whose) == 1 and not register.refuges.draining() and not len(register.clearings)
        return whose.pop() if is_one else ""

    def decide(self, look: Look) -> Sequence[Clearing]:
        """Decide for one of them at the most."""
        clearing = self._found(look.residents, now=look.now)
        if clearing is None:
            return ()
        clearing = clearing.begun(now=look.now, wall=look.wall)
        self._queues.register.making_room.begin(clearing)
        return [clearing]

    def _found(self, residents: Residents, *, now: float) -> Clearing | None:
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
        if candidate.uid in self._vain or (len(self._queues.register.refuges) and candidate.uid != self._cut_off()):
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
