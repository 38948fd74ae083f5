"""Takes pods off GPUs for nobody who waits: off those that fail, and off what is to stand empty.

A GPU fails that is degraded by what is the matter with the card, and not by heat or power: these come with who computes
there, and would go with it. Off such a one everybody is moved who may be and has a place on healthy ones, whatever may
be moved otherwise; who stays is told why. Whole GPUs or nodes are emptied where the operator says so
(`queues.empties`), of the moves that are allowed within an hour. Room is kept for whoever comes in the place of one
that goes, so nobody goes in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import longest_grace
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.room.refuges import controller_of
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.emptying import Emptying
from aliquot_scheduler.reclaim.foreseen import is_foreseen
from aliquot_scheduler.reclaim.moving import Move, Mover
from aliquot_scheduler.reclaim.pauses import Pauses
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.returning import Returning

# Where nobody could be moved is looked at again after so long.
_COOLDOWN = 60.0
# So many go at a time: the others when those have come again.
_MOST_AT_ONCE = 16


class Draining:
    """Decides who goes for nobody."""

    def __init__(self, *, queues: Queues, picture: Picture) -> None:
        self._queues = queues
        self._picture = picture
        self._settings = queues.register.settings
        self._pauses = Pauses()
        # When to look again.
        self._failing_at = 0.0
        self._empties_at = 0.0
        # Who lies on a GPU that fails and stays there (UIDs), and why.
        self.staying: Mapping[str, str] = {}

    def anything(self, *, now: float, allowed: int) -> bool:
        """Whether there may be somebody to move; so many are allowed for what is emptied."""
        refuges = self._queues.register.refuges
        self._pauses.tell_time(now)
        self._pauses.came_in_vain(refuges.in_vain, now=now)
        refuges.in_vain.clear()
        if not self._any_failing():
            self.staying = {}
        return self._drains(now) or self._empties(now, allowed)

    def decide(self, residents: Residents, *, now: float, allowed: int) -> int:
        """Decide; what is decided stands in the register. How many of the moves that are allowed it takes.

        `residents` are those who may be moved.
        """
        if self._drains(now) and self._drained(residents, now=now):
            return 0
        return self._emptied(residents, now=now, allowed=allowed) if self._empties(now, allowed) else 0

    # --- GPUs that fail -----------------------------------------------------------------------------------------------
    def _any_failing(self) -> bool:
        grid = self._picture.grid
        return self._settings.drain_degraded and bool((grid.failing & (grid.holders > 0)).any())

    def _drains(self, now: float) -> bool:
        return now >= self._failing_at and self._any_failing()

    def _drained(self, residents: Residents, *, now: float) -> bool:
        """Whether anybody goes."""
        mover = self._mover(residents)
        moves = mover.off_failing(most=_MOST_AT_ONCE, may_go=self._may_go(now))
        self._go(moves, why="its GPU is degraded", now=now)
        if not moves:
            self._failing_at = now + _COOLDOWN
            told = ((one.uid, self._why_it_stays(one, residents, mover, now=now)) for one in self._on_failing())
            self.staying = {uid: why for uid, why in told if why}
        return bool(moves)

    def _mover(self, residents: Residents) -> Mover:
        cards, returning = self._queues.register.cards, self._returning(residents)
        return Mover(picture=self._picture, cards=cards, residents=residents, returning=returning)

    def _returning(self, residents: Residents) -> Returning:
        return Returning(register=self._queues.register, picture=self._picture, residents=residents)

    def _may_go(self, now: float) -> Callable[[Resident], bool]:
        pauses = self._pauses
        return lambda one: not pauses.are_left_alone(controller_of(one.waiter.pod), now=now)

    def _on_failing(self) -> Iterator[Waiter]:
        bound, grid = self._queues.register.inside.bound, self._picture.grid
        for name, known in self._picture.nodes.items():
            columns = set(np.flatnonzero(grid.failing[known.row]).tolist())
            for gpu, at in known.columns.items() if columns else ():
                there = self._picture.holdings.on((name, gpu)) if at in columns else ()
                yield from (bound[uid] for uid in there if uid in bound)

    def _why_it_stays(self, waiter: Waiter, residents: Residents, mover: Mover, *, now: float) -> str:
        """Empty if it may go soon, or goes."""
        if waiter.pod.metadata.deletion_timestamp:
            return ""
        if why := _why_never(waiter):
            return why
        if (one := residents.by_uid.get(waiter.uid)) is None:
            return ""
        if self._pauses.are_left_alone(controller_of(waiter.pod), now=now):
            return "one of its controller was moved lately, and it is left alone for a while"
        if not residents.let_go({one.uid}):
            return f"it is kept by PodDisruptionBudget {', '.join(residents.budgets_over(one))}"
        return mover.why_not_moved(one)

    # --- what is to stand empty --------------------------------------------------------------------------------------
    def _empties(self, now: float, allowed: int) -> bool:
        return self._settings.empties != "Nothing" and allowed > 0 and now >= self._empties_at

    def _emptied(self, residents: Residents, *, now: float, allowed: int) -> int:
        emptying = Emptying(
            picture=self._picture,
            cards=self._queues.register.cards,
            residents=residents,
            returning=self._returning(residents),
            may_go=self._may_go(now),
            of_nodes=self._settings.empties == "Nodes",
        )
        found = emptying.plan(most=allowed)
        if found is None:
            self._empties_at = now + _COOLDOWN
            return 0
        # One that is kept keeps the others: it would not stand empty.
        self._go(found.moves, why=f"{found.what} is emptied", now=now, together=found.what)
        return len(found.moves)

    def _go(self, moves: Sequence[Move], *, why: str, now: float, together: str = "") -> None:
        register = self._queues.register
        grace = longest_grace((move.who.waiter for move in moves), most=register.clearings.max_grace)
        until = now + grace + 2 * OVERDUE
        owners = (controller_of(move.who.waiter.pod) for move in moves)
        self._pauses.moved(owners, now=now, for_a_day=bool(together))
        register.refuges.open((move.to for move in moves), until=until, drains=why, whose=together)


def _why_never(waiter: Waiter) -> str:
    """Why it is never moved, wherever there is room; empty if it may be."""
    for is_so, why in (
        (waiter.shape.firm, "it is never to be evicted (preemptible: false)"),
        (waiter.group is not None, "it is of a group, and of those nobody is moved"),
        (not controller_of(waiter.pod), "no controller would make it anew"),
        (not is_foreseen(waiter), "only kube-scheduler knows where else it may lie"),
    ):
        if is_so:
            return why
    return ""
