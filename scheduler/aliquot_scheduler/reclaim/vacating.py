"""Moves pods so that whole GPUs or nodes stand empty, where the operator says so (`queues.empties`).

Of the moves that are allowed within an hour, after those for who waits; what is found is in `emptying.py`. It is worth
no more than one move of a controller in a day.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.refuges import controller_of
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.allowance import Allowance
from aliquot_scheduler.reclaim.emptying import Emptying
from aliquot_scheduler.reclaim.look import Look, is_anybody_on_the_way
from aliquot_scheduler.reclaim.moving import keep_room
from aliquot_scheduler.reclaim.pauses import Pauses, Rested
from aliquot_scheduler.reclaim.residents import Resident
from aliquot_scheduler.reclaim.returning import Returning

# Where nobody could be moved is looked at again after so long.
_COOLDOWN = 60.0


class Vacating:
    """Decides what is to stand empty."""

    def __init__(self, *, queues: Queues, picture: Picture, allowance: Allowance, drained: Pauses) -> None:
        """`drained` are those who went off GPUs that fail: they are left alone as long."""
        self._queues = queues
        self._picture = picture
        self._allowance = allowance
        self._empties = queues.register.settings.empties
        self._drained = drained
        self._rested = Rested()
        # When to look again.
        self._at = 0.0

    def anything(self, *, now: float) -> bool:
        """Whether anything may be emptied."""
        register = self._queues.register
        if self._empties == "Nothing" or now < self._at or not self._allowance.at(now):
            return False
        return not (register.books.ledger.tree.queueless or is_anybody_on_the_way(register))

    def decide(self, look: Look) -> Sequence[Clearing]:
        """Decide; nobody waits for it."""
        register, now = self._queues.register, look.now
        self._rested.tell_time(now)
        emptying = Emptying(
            picture=self._picture,
            cards=register.cards,
            residents=look.residents,
            returning=Returning(register=register, picture=self._picture, residents=look.residents),
            may_go=lambda one: self._may_go(one, now=now),
            of_nodes=self._empties == "Nodes",
        )
        found = emptying.plan(most=self._allowance.at(now))
        if found is None:
            self._at = now + _COOLDOWN
            return ()
        self._rested.moved((controller_of(move.who.waiter.pod) for move in found.moves), now=now)
        # One that is kept keeps the others: it would not stand empty.
        keep_room(found.moves, register=register, why=f"{found.what} is emptied", now=now, together=found.what)
        self._allowance.used(len(found.moves))
        return ()

    def _may_go(self, one: Resident, *, now: float) -> bool:
        owner = controller_of(one.waiter.pod)
        return not (self._rested.is_left_alone(owner, now=now) or self._drained.are_left_alone(owner, now=now))
