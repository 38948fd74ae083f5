"""Who has to go or is moved in simulated time: the cores that the leader asks (`reclaim/`), asked at simulated events.

The leader asks once a second. Here it is asked at each event, and while somebody is left for whom nothing was found
again after ten seconds, and then ever more seldom: by time alone only the least run times of queues come to an end.
Disruption budgets are not played; whoever is asked to go is gone when its grace is over.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.consolidation import Consolidation
from aliquot_scheduler.reclaim.policy import NEVER as NOBODY
from aliquot_scheduler.reclaim.policy import policy_of
from aliquot_scheduler.reclaim.reclaim import COOLDOWN, Reclaim
from aliquot_scheduler.simulating.timed.clockwork import NEVER
from aliquot_scheduler.simulating.timed.kubernetes import wall_of

_SELDOM = 300.0


class Reclaiming:
    """Asks who has to go, and when to ask again."""

    def __init__(self, *, queues: Queues, picture: Picture, moves_per_hour: int = 0) -> None:
        self._queues = queues
        self._reclaim = Reclaim(queues=queues, picture=picture)
        self._moving = Consolidation(queues=queues, picture=picture, reclaim=self._reclaim, per_hour=moves_per_hour)
        self._moves = bool(moves_per_hour)
        tree = queues.books.ledger.tree
        self._ever = self._moves or any(
            any(node.guarantee) or policy_of(name, tree=tree).within_queue != NOBODY
            for name, node in tree.nodes.items()
            if name != ROOT
        )
        self._event = 0.0
        self._next = NEVER

    def happened(self, now: float) -> None:
        """Somebody came or went."""
        self._event = now
        self._next = now if self._ever else NEVER

    def victims(self, now: float) -> Iterator[Waiter]:
        """Who is to go now; whoever is told here was asked to."""
        if now < self._next:
            return
        if self._reclaim.anybody(now=now):
            self._reclaim.decide(now=now, wall=wall_of(now))
        if self._moving.anybody(now=now):
            self._moving.decide(now=now, wall=wall_of(now))
        register = self._queues.register
        for clearing in register.clearings:
            for victim in register.clearings.unasked(clearing, bound=register.inside.bound):
                register.clearings.asked(victim.uid)
                yield victim
        unsettled = self._reclaim.is_unsettled or len(register.clearings) or (self._moves and len(register.hall))
        self._next = now + min(max(now - self._event, COOLDOWN), _SELDOM) if unsettled else NEVER

    def look_again(self) -> float:
        """When to ask if nothing happens until then."""
        return self._next
