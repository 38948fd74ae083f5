"""The leader is killed at each single step between pods' creation and the lifting of their gates; queues count.

Whom it had let in goes on being charged where it was let in; whom it had not gets a turn of its successor. In the end
each pod is bound once, the books are those that counting anew gives, and what ended pods had is free for who waits.
`ALIQUOT_STEP=17` plays that death alone.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import PODS, queues_of
from aliquot_scheduler.queues.turns import Queues
from simulation.universe.doomed import DEFINITIONS, Doomed, definition_of_queues, quiet
from simulation.universe.replica import SimReplica
from simulation.universe.world import NAMESPACES

QUIET = quiet("test_every_step_of_a_turn.py")
FEWEST_STEPS = 20
SPACE = "team"


class Turn(Doomed):
    """A gang of two and a single one fill a queue and its GPU; a fourth waits for what they have."""

    let_in: frozenset[str] = frozenset()
    wanted = 3

    async def furnish(self) -> None:
        """A queue with a limit, another one, and a namespace that is at home in the first."""
        await super().furnish()
        town = self.town
        await town.api.create(DEFINITIONS, definition_of_queues())
        for name in ("a", "b"):
            spec: dict[str, Any] = {"compute": {"limit": 100, "guarantee": 50}}
            await town.api.create(queues_of(town.names), {"metadata": {"name": name}, "spec": spec})
        await town.api.create(NAMESPACES, {"metadata": {"name": SPACE, "labels": {town.names.queue: "a"}}})

    async def begin(self) -> None:
        """They come at once."""
        names = self.town.names
        gang = {"labels": {names.group: "g"}, "annotations": {names.group_size: "2"}}
        wanted = [self.asking(name, 30, 9000, **gang) for name in ("g0", "g1")]
        for pod in (*wanted, self.asking("one", 40, 9000), self.asking("late", 60, 9000)):
            await self.town.api.create(PODS, pod, namespace=SPACE)

    def is_over(self) -> bool:
        """All for whom there is room have passed their gates."""
        return len(self._let_in()) >= self.wanted

    async def after_death(self) -> None:
        """What had been done by then is kept in mind."""
        self.let_in = self._let_in()

    def _let_in(self) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in self.town.api.pods() if not pod.spec.scheduling_gates)

    async def end(self, leader: SimReplica) -> None:
        """All three are bound and counted; then their slices go to the one that waits."""
        await self.until(lambda: self.town.starts >= 3)
        await self.well()
        self._is_counted(used=100, asked=60)
        for pod in self._pods("g0", "g1"):
            await self.town.workload.delete(pod, force=False)
        await self.until(lambda: bool(self._pods("late")[0].spec.node_name))
        await self.well()
        self._is_counted(used=100, asked=0)
        assert self.town.books.bound == 4, f"{self.town.books.bound} bindings, the leader being {leader.name}"

    def _pods(self, *names: str) -> list[Pod]:
        return [pod for pod in self.town.api.pods() if pod.metadata.name in names]

    def _is_counted(self, *, used: int, asked: int) -> None:
        reign = self.leader.reign
        assert reign is not None
        account = reign.turns.books.ledger.accounts["a"]
        assert (account.used[0], account.asked[0]) == (used, asked)
        assert {self._charged(pod, reign.turns) for pod in self.town.api.pods() if pod.spec.node_name} == {("a", "a")}

    def _charged(self, pod: Pod, turns: Queues) -> tuple[str, str]:
        return turns.charged_in(pod.metadata.uid), pod.metadata.annotations.get(self.town.names.charged, "")


class MovedTurn(Turn):
    """The namespace goes to another queue while nobody leads."""

    wanted = 2

    async def begin(self) -> None:
        """Two come that fit together."""
        for name in ("one", "two"):
            await self.town.api.create(PODS, self.asking(name, 40, 9000), namespace=SPACE)

    async def after_death(self) -> None:
        """The label is changed."""
        await super().after_death()
        label = merge_patch({"metadata": {"labels": {self.town.names.queue: "b"}}})
        await self.town.api.client.patch(NAMESPACES, name=SPACE, patch=label)

    async def end(self, leader: SimReplica) -> None:
        """Whoever was let in is charged there, and whoever was not in the other queue."""
        await self.until(lambda: self.town.starts >= 2)
        await self.well()
        reign = self.leader.reign
        assert reign is not None
        if not self.died:
            return
        for pod in self.town.api.pods():
            right = "a" if pod.metadata.uid in self.let_in else "b"
            assert self._charged(pod, reign.turns) == (right, right), leader.name


@pytest.mark.timeout(300)
@pytest.mark.parametrize("story", [Turn, MovedTurn])
def test_a_leader_s_death_before_a_gate_is_lifted_loses_nothing(story: type[Turn]) -> None:
    """Nor does it leak: no pod is bound twice or never, and no quota is charged that nobody holds."""
    first = int(os.environ.get("ALIQUOT_STEP", "1"))
    let_in = set()
    for death in itertools.count(first):
        told = story(scale=QUIET, death=death)
        if not told.dies() or "ALIQUOT_STEP" in os.environ:
            break
        let_in.add(len(told.let_in))
    assert first > 1 or (death > FEWEST_STEPS and let_in >= set(range(story.wanted))), (death, let_in)
