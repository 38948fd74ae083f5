"""Takes pods off GPUs that fail, whatever else is under way.

A GPU fails that is degraded by what is the matter with the card, and not by heat or power: these come with who computes
there, and would go with it. Off such a one everybody is moved who may be and has a place on healthy ones, whatever may
be moved otherwise; who stays is told why (`staying.py`). Room is kept for whoever comes in the place of one that goes,
so nobody goes in vain; so many are on the way at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.refuges import controller_of
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.look import Look
from aliquot_scheduler.reclaim.moving import Move, Mover, keep_room
from aliquot_scheduler.reclaim.pauses import Pauses
from aliquot_scheduler.reclaim.residents import Resident
from aliquot_scheduler.reclaim.returning import Returning
from aliquot_scheduler.reclaim.staying import Staying

# Where nobody could be moved is looked at again after so long.
_COOLDOWN = 60.0
# So many are on the way at a time: the others go as those come again.
_MOST_AT_ONCE = 16


class Draining:
    """Decides who goes off GPUs that fail."""

    def __init__(self, *, queues: Queues, picture: Picture) -> None:
        self._queues = queues
        self._picture = picture
        self._settings = queues.register.settings
        self.pauses = Pauses()
        self._staying = Staying(queues=queues, picture=picture, pauses=self.pauses)
        # When to look again.
        self._at = 0.0

    @property
    def staying(self) -> Mapping[str, str]:
        """Who lies on a GPU that fails and stays there (UIDs), and why."""
        return self._staying.told

    def anything(self, *, now: float) -> bool:
        """Whether there may be somebody to move, or to tell."""
        refuges = self._queues.register.refuges
        self.pauses.tell_time(now)
        self.pauses.came_in_vain(refuges.in_vain, now=now)
        refuges.in_vain.clear()
        if not self._any_failing():
            self._staying.forget()
            return False
        return self._drains(now) or self._staying.is_due(now)

    def decide(self, look: Look) -> Sequence[Clearing]:
        """Decide; nobody waits for it."""
        register = self._queues.register
        returning = Returning(register=register, picture=self._picture, residents=look.residents)
        mover = Mover(picture=self._picture, cards=register.cards, residents=look.residents, returning=returning)
        moves: Sequence[Move] = ()
        if self._drains(look.now):
            moves = mover.off_failing(most=self._most(), may_go=lambda one: self._may_go(one, now=look.now))
            self._at = look.now if moves else look.now + _COOLDOWN
        if moves:
            self._pause(moves, now=look.now)
            keep_room(moves, register=register, why="its GPU is degraded", now=look.now)
        if not moves or self._staying.is_due(look.now):
            self._staying.tell(look, mover)
        return ()

    def _any_failing(self) -> bool:
        grid = self._picture.grid
        return self._settings.drain_degraded and bool((grid.failing & (grid.holders > 0)).any())

    def _drains(self, now: float) -> bool:
        return now >= self._at and self._most() > 0

    def _most(self) -> int:
        on_the_way = [one for one in self._queues.register.refuges.draining() if not one.whose]
        return _MOST_AT_ONCE - len(on_the_way)

    def _may_go(self, one: Resident, *, now: float) -> bool:
        return not self.pauses.is_left_alone(one.uid, controller_of(one.waiter.pod), now=now)

    def _pause(self, moves: Sequence[Move], *, now: float) -> None:
        """Of each controller whose pods go: only who has come since is left alone."""
        there: dict[str, set[str]] = {}
        for uid, waiter in self._queues.register.inside.bound.items():
            there.setdefault(controller_of(waiter.pod), set()).add(uid)
        going: dict[str, set[str]] = {}
        for move in moves:
            going.setdefault(controller_of(move.who.waiter.pod), set()).add(move.who.uid)
        for owner, uids in going.items():
            self.pauses.moved(owner, uids, there=there[owner], now=now)
