"""A town with an owner and a borrower: pods are sent away for others while everything breaks, by the seed.

When nothing breaks any more others borrow all there is, and the owner wants its guarantee back: it has each part of it
within the grace of who has to go, and a few seconds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS, queues_of
from simulation.seeds import SOAK, chosen
from simulation.universe.chance import Chance
from simulation.universe.doomed import DEFINITIONS, definition_of_queues
from simulation.universe.evictions import Evictions
from simulation.universe.owed import Owed
from simulation.universe.runtime import Plan
from simulation.universe.town import HONEST, Seat, Town, TownScale
from simulation.universe.workload import Workload

# Of 400 % on two nodes: a half, or all, so that the last one that has borrowed has to go.
GUARANTEES = (200, 400)
OWNER, BORROWER = "owner", "borrower"
# The longest time that anybody has to go, and for how long one may outlive its killing after that.
GRACE = 30
LINGERS = 10.0
# To choose who goes, to let in, for what requests and kubelets take, and the second between two looks of this test.
A_FEW_SECONDS = 5.0
WITHIN = GRACE + LINGERS + A_FEW_SECONDS
# So many, of a quarter of a card to a whole one, take what there is; within so long, if nobody lingers.
BORROWERS = 10
MEMORY_A_PERCENT = 100
ALL_IS_TAKEN_WITHIN = 60.0
AGAIN = "ALIQUOT_SEED={seed} pytest tests/simulation/test_reclaim_in_towns.py"


class QueuedWorkload(Workload):
    """Users of whom most only borrow."""

    def _shape(self, *, plain: bool) -> dict[str, Any]:
        spec = super()._shape(plain=plain)
        labels = spec["meta"].setdefault("labels", {})
        labels[Names().queue] = self._chance.choice((OWNER, BORROWER, BORROWER))
        return spec

    def plan_of(self, uid: str, container: str) -> Plan:
        """None outlives its killing until it is given up: that is a story of its own (`Undying`)."""
        plan = super().plan_of(uid, container)
        return msgspec.structs.replace(plan, after_kill=min(plan.after_kill, LINGERS))

    async def come(self, queue: str, compute: int, *, grace: int) -> None:
        """One comes that asks for a part of one GPU, and works until it is killed: it has all its time, and no more."""
        self.created += 1
        limits = {self._names.compute: str(compute), self._names.memory: str(MEMORY_A_PERCENT * compute)}
        spec = {
            "containers": [{"name": "app-0", "image": "x", "resources": {"limits": limits}}],
            "schedulingGates": self._gates,
            "terminationGracePeriodSeconds": grace,
        }
        meta = {"name": f"{queue}-{self.created}", "labels": {self._names.queue: queue}}
        made: Pod = await self._api.create(PODS, {"metadata": meta, "spec": spec}, namespace="default")
        self._plans[made.metadata.uid, "app-0"] = Plan(on_term=None)


class ReclaimingTown(Town):
    """A town whose pods wait in queues."""

    def __init__(self, seed: int, evictions: Evictions) -> None:
        super().__init__(seed, TownScale(seconds=120.0, look_every=1.0, again=AGAIN, habits=HONEST))
        self._guarantee = GUARANTEES[1 - seed % 2]
        self.workload = self._users = QueuedWorkload(
            names=self.names,
            api=self.api,
            placer=Seat(),
            chance=Chance(seed, "workload"),
            habits=self.scale.habits,
            deeds=self.deeds,
            trace=self.trace,
            gate=self.names.gate,
        )

        self.owed = Owed(
            names=self.names,
            api=self.api,
            placers=self.placers,
            now=self.clock.monotonic,
            queue=OWNER,
            guarantee=self._guarantee,
        )
        self._evictions = evictions
        # Whether nothing breaks any more, and all was well once.
        self.is_calm = False

    async def furnish(self) -> None:
        """And with queues."""
        await self.api.create(DEFINITIONS, definition_of_queues())
        specs: dict[str, dict[str, Any]] = {OWNER: {"compute": {"guarantee": self._guarantee}}, BORROWER: {}}
        for name, spec in specs.items():
            queue = {"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}}
            await self.api.create(queues_of(self.names), queue)
        await super().furnish()

    async def afterwards(self) -> None:
        """Others take all there is, and then the owner wants what it is guaranteed."""
        self.is_calm, chance = True, Chance(self.seed, "who comes afterwards")
        for pod in self._of(OWNER):
            await self.workload.delete(pod, force=False)
        for _ in range(BORROWERS):
            await self._users.come(BORROWER, chance.choice((25, 50, 100)), grace=chance.choice((GRACE // 2, GRACE)))
        await self._pass(ALL_IS_TAKEN_WITHIN)
        before, left = len(self._evictions.taken), self._guarantee
        while left:
            compute = min(left, chance.choice((25, 50, 100)))
            await self._users.come(OWNER, compute, grace=GRACE)
            left -= compute
        await self._pass(2 * WITHIN)
        assert len(self._evictions.taken) > before, "it showed nothing: nobody had to go"

    async def _pass(self, seconds: float) -> None:
        await self.watch([self.loop.spawn(self.workload.place_waiting())], seconds)

    def _of(self, queue: str) -> list[Pod]:
        return [pod for pod in self.api.pods() if pod.metadata.labels.get(self.names.queue) == queue]

    def raise_broken(self) -> None:
        """Nor does anybody wait for longer than that for what it is owed."""
        super().raise_broken()
        if self.is_calm:
            late = [key for key, seconds in self.owed.look().items() if seconds > WITHIN]
            assert not late, f"guaranteed, and waited for, for more than {WITHIN:g} s: {late}"

    def shortcomings(self) -> list[str]:
        """Who borrows may rightly wait though there is room: it is held back, or kept for whom it was freed."""
        borrowers = {pod.key for pod in self._of(BORROWER)}
        found = [*super().shortcomings(), *(f"{key} waits for what it is guaranteed" for key in self.owed.look())]
        return [one for one in found if not any(one.startswith(f"{key} waits though") for key in borrowers)]


@pytest.mark.timeout(6 * 3600 if SOAK else 240)
def test_owners_get_back_what_they_lent_whatever_breaks(evictions: Evictions) -> None:
    """In time, once nothing breaks any more; and nobody is evicted twice, by whatever leader."""
    for seed in chosen(0, each=3, soak=500):
        evictions.clear()
        town = ReclaimingTown(seed, evictions)
        town.run()
        assert town.books.bound > 0, f"seed {seed} showed nothing: no pod was bound"
        assert max(Counter(evictions.taken).values(), default=0) <= 1, (seed, evictions.taken)
