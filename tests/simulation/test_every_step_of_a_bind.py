"""The leader is killed at each single step from a pod's creation to its start, and the other replica brings it there.

A step is a turn of any of its tasks or a request. `ALIQUOT_STEP=17` plays that death alone.
"""

from __future__ import annotations

import itertools
import os

import pytest

from aliquot_kube.resources import PODS
from simulation.universe.doomed import Doomed, quiet
from simulation.universe.replica import SimReplica

QUIET = quiet("test_every_step_of_a_bind.py")
FEWEST_STEPS = 25


class Bind(Doomed):
    """One pod comes, is bound and starts."""

    async def begin(self) -> None:
        """It comes."""
        await self.town.api.create(PODS, self.asking("one", 60, 9000), namespace="default")

    def is_over(self) -> bool:
        """It has started."""
        return self.town.starts > 0

    async def end(self, leader: SimReplica) -> None:
        """It was bound once."""
        await self.until(self.is_over)
        await self.well()
        assert self.town.books.bound == 1, f"{self.town.books.bound} bindings, the leader being {leader.name}"


@pytest.mark.timeout(300)
def test_a_leader_s_death_at_any_step_of_a_bind_leaks_nothing() -> None:
    """The pod is bound once, runs, and nobody keeps room for what is not there."""
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    for death in itertools.count(first):
        if not Bind(scale=QUIET, death=death).dies() or "ALIQUOT_STEP" in os.environ:
            break
    assert death > FEWEST_STEPS or first > 1, f"the story is over after {death} steps: it does not show what it should"
