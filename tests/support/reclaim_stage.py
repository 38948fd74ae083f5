"""A small cluster with queues in which pods are sent away for others: decided, asked to go, gone, and let in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_core.objects import OwnerReference
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.reclaim.consolidation import Consolidation
from aliquot_scheduler.reclaim.reclaim import Reclaim
from aliquot_scheduler.reclaim.residents import Budget
from support.centre import NAMES, WALL
from support.queue_scenarios import Pods
from support.queue_stage import Stage

replace = msgspec.structs.replace

# Whoever fits without anybody going has had its turn by then.
A_WHILE = 11.0


class ReclaimStage(Stage):
    """The stage with somebody who decides who has to go."""

    def __init__(self, *args: Any, moves_per_hour: int = 0, **more: Any) -> None:
        super().__init__(*args, **more)
        self.reclaim = Reclaim(queues=self.queues, picture=self.picture)
        self.evicted: list[str] = []
        self.consolidation = Consolidation(
            queues=self.queues, picture=self.picture, reclaim=self.reclaim, per_hour=moves_per_hour
        )

    @property
    def wall(self) -> float:
        """What the clock on the wall says."""
        return WALL + self.now

    def decide(self, *, budgets: Sequence[Budget] = (), after: float = 0.0) -> list[Clearing]:
        """Decide who has to go; nobody is asked yet."""
        self.now += after
        self.beat()
        return self.reclaim.decide(now=self.now, wall=self.wall, budgets=budgets)

    def submit_made(self, uid: str, *args: Any, by: str, **more: Any) -> None:
        """A pod joins that a controller has made, and would make anew."""
        pod = self.submit(uid, *args, **more)
        owner = OwnerReference(kind="Job", name=by, uid=by, controller=True)
        self.see(replace(pod, metadata=replace(pod.metadata, owner_references=[owner])))

    def consolidate(self, *, budgets: Sequence[Budget] = (), after: float = 0.0) -> list[str]:
        """Decide who is moved; nobody is asked yet. Who that is, as far as it is not told before."""
        self.now += after
        self.beat()
        before = self.queues.register.refuges.movers()
        if self.consolidation.anybody(now=self.now):
            self.consolidation.decide(now=self.now, wall=self.wall, budgets=budgets)
        return sorted(self.queues.register.refuges.movers() - before)

    def evict(self, *, grace: float = 30.0) -> list[str]:
        """Ask all who are to go; the API server takes it, and their time runs."""
        asked = []
        clearings, bound = self.queues.register.clearings, self.queues.register.inside.bound
        for clearing in clearings:
            for victim in clearings.unasked(clearing, bound=bound):
                clearings.asked(victim.uid)
                asked.append(victim.uid)
                self.leave(victim.uid, grace=grace)
        for refuge in self.queues.register.refuges.drained(bound):
            uid = refuge.place.waiter.uid
            if not clearings.was_asked(uid):
                clearings.asked(uid)
                asked.append(uid)
                self.leave(uid, grace=grace)
        self.evicted += asked
        return asked

    def leave(self, uid: str, *, grace: float = 30.0) -> None:
        """A pod is on the way out."""
        meta = replace(
            self.pods[uid].metadata,
            deletion_timestamp=second_time(self.wall + grace),
            deletion_grace_period_seconds=int(grace),
        )
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


def submit(stage: ReclaimStage, pods: Pods, made: Counter[str]) -> None:
    """They join, one after the other."""
    for _ in range(pods.count):
        uid = f"{pods.queue}{made[pods.queue]}"
        made[pods.queue] += 1
        stage.submit(
            uid,
            pods.compute,
            pods.memory,
            queue=pods.queue,
            group=pods.gang,
            notes=pods.notes,
            priority=pods.priority,
        )


def gone(stage: ReclaimStage) -> Counter[str]:
    """Who has to go until all is quiet, by queue; whoever can come in does."""
    found, asked = Counter[str](), ["somebody"]
    while stage.run(after=A_WHILE) or asked:
        stage.decide()
        asked = stage.evict()
        found.update(stage.pods[uid].metadata.labels[NAMES.queue] for uid in asked)
        for uid in asked:
            stage.gone(uid)
    return found
