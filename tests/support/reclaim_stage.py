"""A small cluster with queues in which pods are sent away for others: decided, asked to go, gone, and let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_scheduler.queues.clearings import Clearing
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import WALL
from support.queue_stage import Stage

replace = msgspec.structs.replace


class ReclaimStage(Stage):
    """The stage with somebody who decides who has to go."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.reclaim = Reclaim(queues=self.queues, picture=self.picture)
        self.evicted: list[str] = []

    @property
    def wall(self) -> float:
        """What the clock on the wall says."""
        return WALL + self.now

    def decide(self, *, budgets: Sequence[Budget] = (), after: float = 0.0) -> list[Clearing]:
        """Decide who has to go; nobody is asked yet."""
        self.now += after
        self.beat()
        return self.reclaim.decide(now=self.now, wall=self.wall, budgets=budgets)

    def evict(self, *, grace: float = 30.0) -> list[str]:
        """Ask all who are to go; the API server takes it, and their time runs."""
        asked = []
        clearings, bound = self.queues.register.clearings, self.queues.register.inside.bound
        for clearing in clearings:
            for victim in clearings.unasked(clearing, bound=bound):
                clearings.asked(victim.uid)
                asked.append(victim.uid)
                self.leave(victim.uid, grace=grace)
        self.evicted += asked
        return asked

    def leave(self, uid: str, *, grace: float = 30.0) -> None:
        """A pod is on the way out."""
        meta = replace(self.pods[uid].metadata, deletion_timestamp=second_time(self.wall + grace))
        self.see(replace(self.pods[uid], metadata=meta))

    def reclaimed(self) -> list[str]:
        """Decide, evict, and let all of them go; who was asked."""
        self.decide()
        asked = self.evict()
        for uid in asked:
            self.gone(uid)
        return sorted(asked)

    def victims(self, **more: Any) -> list[str]:
        """Who would have to go now."""
        return sorted(victim.uid for clearing in self.decide(**more) for victim in clearing.victims)
