"""A pod whose gate is lifted and whose turn led to nothing: at its next turn it is bound within two seconds.

A lifted gate can't come back, so kube-scheduler has put it aside for five minutes by then, and nothing that happens in
the cluster makes it look again: only our write to the pod does.
"""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS
from simulation.universe.doomed import Doomed, quiet
from simulation.universe.kube_scheduler import FLUSH
from simulation.universe.replica import SimReplica
from simulation.universe.world import NAMESPACES

QUIET = quiet("test_bound_again.py")
# As docs/queues.md says it.
BOUND_WITHIN = 2.0
SPACE = "team"
# A pod that has lost two turns rests no longer.
RESTED = 20.0
# Here no leader dies.
NEVER = 10**9


class BoundAgain(Doomed):
    """Something of which only kube-scheduler knows keeps a pod off its node until its turn is over."""

    # By the clock: when kube-scheduler laid it aside, at most; and when it was not yet let in again, and when bound.
    aside, again, bound = inf, inf, inf

    def __init__(self, *, others: bool) -> None:
        super().__init__(scale=QUIET, death=NEVER)
        self._others = others

    async def before(self) -> None:
        """kube-scheduler has asked us before: else its pods are let in again only once it does."""
        await self.town.api.create(NAMESPACES, {"metadata": {"name": SPACE}})
        await self._submit("runs", 30)
        await self.until(lambda: bool(self._pod("runs").spec.node_name))

    async def begin(self) -> None:
        """It is let in, and kube-scheduler finds no node for it."""
        self.town.scheduler.keeps_off.add(f"{SPACE}/stuck")
        await self._submit("stuck", 60)
        await self.until(lambda: not self._pod("stuck").spec.scheduling_gates)
        self.aside = self._now
        await self.until(lambda: not self._is_in("stuck"))

    def is_over(self) -> bool:
        """Its turn is taken back."""
        return True

    async def end(self, leader: SimReplica) -> None:
        """What kept it is gone, of which kube-scheduler hears nothing; others may have its room for a while."""
        del leader
        if self._others:
            await self._submit("other", 60)
            await self.until(lambda: bool(self._pod("other").spec.node_name))
            await asyncio.sleep(RESTED)
        assert not self._pod("stuck").spec.node_name
        self.town.scheduler.keeps_off.clear()
        if self._others:
            await self.town.workload.delete(self._pod("other"), force=False)
        await self.until(self._has_its_turn)
        await self.until(lambda: bool(self._pod("stuck").spec.node_name))
        self.bound = self._now

    async def _submit(self, name: str, compute: int) -> None:
        await self.town.api.create(PODS, self.asking(name, compute, 4000), namespace=SPACE)

    @property
    def _now(self) -> float:
        return self.town.clock.monotonic()

    def _pod(self, name: str) -> Pod:
        return next(pod for pod in self.town.api.pods() if pod.metadata.name == name)

    def _has_its_turn(self) -> bool:
        if self._pod("stuck").spec.node_name or self._is_in("stuck"):
            return True
        self.again = self._now
        return False

    def _is_in(self, name: str) -> bool:
        """Whether room is kept for it."""
        reign = self.leader.reign
        assert reign is not None
        return self._pod(name).metadata.uid in {waiter.uid for waiter in reign.turns.under_way()}


@pytest.mark.parametrize("others", [False, True], ids=["its room stays free", "others have its room"])
def test_who_is_let_in_again_is_bound_within_two_seconds(*, others: bool) -> None:
    """By the leader's decision, and long before kube-scheduler would look at it by itself."""
    story = BoundAgain(others=others)
    story.dies()
    assert story.bound - story.again <= BOUND_WITHIN
    assert story.bound < story.aside + FLUSH - BOUND_WITHIN, "kube-scheduler may have looked by itself"
