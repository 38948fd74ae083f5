"""The leader is killed at each single step from the coming of an urgent pod to the lifting of its gate.

Somebody goes for it, once, and the room is its own: though nobody leads while the victim ends, and somebody else waits
who would come first by the order of turns. `ALIQUOT_STEP=17` plays that death alone.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS
from simulation.universe.doomed import PRIORITIES, Doomed, quiet
from simulation.universe.evictions import Evictions
from simulation.universe.replica import SimReplica

QUIET = quiet("test_every_step_of_a_reclaim.py")
FEWEST_STEPS = 20
# By namespace, which is its queue's name too.
MINE, THEIRS = "mine", "theirs"
SPECS: dict[str, dict[str, Any]] = {MINE: {"preemption": {"withinQueue": "SameUser"}}, THEIRS: {}}


class Urgent(Doomed):
    """A GPU is full; its holder's owner wants it for something more urgent, and another team for anything."""

    def __init__(self, *, death: int) -> None:
        super().__init__(scale=QUIET, death=death)
        # Whether the victim was asked to go when the leader died.
        self.was_asked = False

    async def furnish(self) -> None:
        """Two queues, each with a namespace of its own."""
        await super().furnish()
        await self.open_queues(SPECS)
        await self.town.api.create(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 9})

    async def before(self) -> None:
        """Somebody runs on all of it."""
        await self.town.api.create(PODS, self.asking("low", 100, 9000), namespace=MINE)
        await self.until(lambda: self.town.starts == 1)

    async def begin(self) -> None:
        """The urgent one, and one of a team that has nothing."""
        urgent = self.asking("urgent", 100, 9000)
        urgent["spec"]["priorityClassName"] = "urgent"
        await self.town.api.create(PODS, urgent, namespace=MINE)
        await self.town.api.create(PODS, self.asking("other", 100, 9000), namespace=THEIRS)

    def is_over(self) -> bool:
        """It is let in."""
        return not self._pod("urgent").spec.scheduling_gates

    async def after_death(self) -> None:
        """Look how far it came."""
        low = [pod for pod in self.town.api.pods() if pod.metadata.name == "low"]
        self.was_asked = not low or bool(low[0].metadata.deletion_timestamp)

    async def end(self, leader: SimReplica) -> None:
        """It runs, and the other waits still; then that one has its turn."""
        await self.until(lambda: bool(self._pod("urgent").spec.node_name))
        assert self._pod("other").spec.scheduling_gates, f"the other was let in, the leader being {leader.name}"
        await self.until(lambda: self.town.starts == 2)
        await self.town.workload.delete(self._pod("urgent"), force=False)
        await self.until(lambda: bool(self._pod("other").spec.node_name))
        await self.well()
        assert self.town.books.bound == 3

    def _pod(self, name: str) -> Pod:
        return next(pod for pod in self.town.api.pods() if pod.metadata.name == name)


@pytest.mark.timeout(300)
def test_a_leader_s_death_gives_nobody_else_what_was_freed(evictions: Evictions) -> None:
    """Nor does it send anybody away twice: one goes for it in each story, whenever the leader dies."""
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    asked = set()
    for death in itertools.count(first):
        evictions.clear()
        told = Urgent(death=death)
        died = told.dies()
        # Who dies with the answer on its way has not heard of it.
        assert [name for name, _ in evictions.taken] in (["low"], []), (death, evictions.taken)
        if not died or "ALIQUOT_STEP" in os.environ:
            break
        asked.add(told.was_asked)
    assert first > 1 or (death > FEWEST_STEPS and asked == {False, True}), (death, asked)
