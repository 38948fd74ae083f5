"""Moves pods: for one that waits (`helping.py`), off GPUs that fail (`draining.py`), so that some stand empty.

Who is moved: pods that may be sent away at all (`residents.py`), that somebody makes anew, that are in no group and
have run for ten minutes, of whose place kube-scheduler knows nothing that is not known here. Off GPUs that fail they go
whatever else is under way; the others are one plan at a time, and none while room is being made for owners, within a
budget (`queues.moves_per_hour`). It grows from nothing when a leader begins, so that leaders who follow each other
quickly move no more than one would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.reclaim.allowance import Allowance
from aliquot_scheduler.reclaim.draining import Draining
from aliquot_scheduler.reclaim.foreseen import why_not_elsewhere
from aliquot_scheduler.reclaim.helping import Helping
from aliquot_scheduler.reclaim.look import Decider, Look
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget, Resident
from aliquot_scheduler.reclaim.vacating import Vacating

# Whoever was moved stays for so long at least.
_LEAST_RUN = 600.0


class Consolidation:
    """Asks one after the other who is to be moved."""

    def __init__(self, *, queues: Queues, picture: Picture, reclaim: Reclaim, per_hour: int) -> None:
        allowance = Allowance(per_hour=per_hour)
        self._reclaim = reclaim
        self._draining = Draining(queues=queues, picture=picture)
        self._deciders: tuple[Decider, ...] = (
            self._draining,
            Helping(queues=queues, picture=picture, reclaim=reclaim, allowance=allowance),
            Vacating(queues=queues, picture=picture, allowance=allowance, drained=self._draining.pauses),
        )

    def anybody(self, *, now: float) -> bool:
        """Whether there may be somebody to move."""
        # Each is told the time, whatever the others say.
        found = [one.anything(now=now) for one in self._deciders]
        return any(found)

    @property
    def staying(self) -> Mapping[str, str]:
        """Who lies on a degraded GPU and stays there (UIDs), and why."""
        return self._draining.staying

    def decide(self, *, now: float, wall: float, budgets: Sequence[Budget] = ()) -> list[Clearing]:
        """Decide; what is decided stands in the register."""
        residents = self._reclaim.roster.residents(now=now, wall=wall, budgets=budgets, may_go=_may_be_moved)
        look = Look(now=now, wall=wall, residents=residents)
        # What one has decided keeps those from deciding who come after it, so each sees everybody as they are.
        return [made for one in self._deciders if one.anything(now=now) for made in one.decide(look)]


def _may_be_moved(one: Resident, ran: float) -> bool:
    return ran >= _LEAST_RUN and not why_not_elsewhere(one.waiter)
