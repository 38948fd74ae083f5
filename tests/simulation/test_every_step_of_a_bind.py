"""The leader is killed at each single step from a pod's creation to its start, and the other replica brings it there.

A step is a turn of any of its tasks or a request. `ALIQUOT_STEP=17` plays that death alone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from aliquot_kube.resources import PODS
from simulation.universe.replica import SimReplica
from simulation.universe.runtime import Plan
from simulation.universe.town import Town, TownScale

QUIET = TownScale(
    again="ALIQUOT_STEP=<step> pytest tests/simulation/test_every_step_of_a_bind.py",
    nodes=1,
    gpus=1,
    deadly=False,
    heartbeat=5.0,
    status_every=5.0,
    settle=90.0,
    look_every=1.0,
)
FEWEST_STEPS = 40
# A Deployment starts it anew; it follows then.
RESTART = 3.0
STORY_ENDS_WITHIN = 90.0


class Stage:
    """A quiet town whose leader dies when it is told to."""

    def __init__(self, *, death: int) -> None:
        self.town = Town(1, QUIET)
        self.town.workload.plan_of = lambda *_: Plan()  # type: ignore[method-assign]
        self._death = death
        self.died = False

    async def play(self) -> None:
        """One pod comes; some steps later the leader dies."""
        town = self.town
        await town.furnish()
        town.nodes[0].start_agent()
        for replica in town.replicas:
            replica.start()
        await self._until(lambda: not town.shortcomings())
        leader = next(replica for replica in town.replicas if replica.leads)
        assert leader.life is not None
        leader.life.doom(self._death)
        await town.api.create(PODS, self._wanted(), namespace="default")
        await self._until(lambda: town.starts > 0 or not leader.alive)
        self.died = not leader.alive
        if self.died:
            await asyncio.sleep(RESTART)
            leader.start()
        else:
            leader.life.spare()
        await self._until(lambda: town.starts > 0)
        await town.until_well(town.loop.spawn(town.workload.place_waiting()), within=QUIET.settle)
        self._one_binding(leader)

    def _wanted(self) -> dict[str, Any]:
        names = self.town.names
        container = {"name": "main", "image": "x", "resources": {"limits": {names.compute: "60", names.memory: "9000"}}}
        spec = {"containers": [container], "schedulingGates": [{"name": names.gate}]}
        return {"metadata": {"name": "one"}, "spec": spec}

    def _one_binding(self, leader: SimReplica) -> None:
        assert self.town.books.bound == 1, f"{self.town.books.bound} bindings, the leader being {leader.name}"

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(STORY_ENDS_WITHIN):
            while not holds():
                self.town.raise_broken()
                await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
def test_a_leader_s_death_at_any_step_of_a_bind_leaks_nothing() -> None:
    """The pod is bound once, runs, and nobody keeps room for what is not there."""
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    for death in itertools.count(first):
        stage = Stage(death=death)
        stage.town.play(stage.play())
        if not stage.died or "ALIQUOT_STEP" in os.environ:
            break
    assert death > FEWEST_STEPS or first > 1, f"the story is over after {death} steps: it does not show what it should"
