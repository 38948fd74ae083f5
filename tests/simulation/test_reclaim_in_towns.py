"""A town with an owner and a borrower: pods are sent away for others while everything breaks, by the seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aliquot_core.names import Names
from aliquot_kube.resources import queues_of
from simulation.seeds import SOAK, chosen
from simulation.universe.chance import Chance
from simulation.universe.doomed import DEFINITIONS, definition_of_queues
from simulation.universe.evictions import Evictions
from simulation.universe.town import HONEST, Seat, Town, TownScale
from simulation.universe.workload import Workload

# Of 400 % on two nodes.
SPECS: dict[str, dict[str, Any]] = {"owner": {"compute": {"guarantee": 200}}, "borrower": {}}
MORE = range(10_001, 10_013)
AGAIN = "ALIQUOT_SEED={seed} pytest tests/simulation/test_reclaim_in_towns.py"


class QueuedWorkload(Workload):
    """Users of whom most only borrow."""

    def _shape(self, *, plain: bool) -> dict[str, Any]:
        spec = super()._shape(plain=plain)
        labels = spec["meta"].setdefault("labels", {})
        labels[Names().queue] = self._chance.choice(("owner", "borrower", "borrower"))
        return spec


class ReclaimingTown(Town):
    """A town whose pods wait in queues."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, TownScale(seconds=120.0, again=AGAIN, habits=HONEST))
        self.workload = QueuedWorkload(
            names=self.names,
            api=self.api,
            placer=Seat(),
            chance=Chance(seed, "workload"),
            habits=self.scale.habits,
            deeds=self.deeds,
            trace=self.trace,
            gate=self.names.gate,
        )

    async def furnish(self) -> None:
        """And with queues."""
        await self.api.create(DEFINITIONS, definition_of_queues())
        for name, spec in SPECS.items():
            queue = {"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}}
            await self.api.create(queues_of(self.names), queue)
        await super().furnish()

    def shortcomings(self) -> list[str]:
        """Who borrows may rightly wait though there is room: it is held back, or kept for whom it was freed."""
        borrowers = {pod.key for pod in self.api.pods() if pod.metadata.labels.get(self.names.queue) == "borrower"}
        found = super().shortcomings()
        return [one for one in found if not any(one.startswith(f"{key} waits though") for key in borrowers)]


@pytest.mark.timeout(6 * 3600 if SOAK else 240)
def test_owners_get_back_what_they_lent_whatever_breaks(evictions: Evictions) -> None:
    """Nobody is evicted twice, by whatever leader; all else that must hold in a town holds."""
    # In every other town somebody has to go; a change elsewhere makes other towns of the same seeds.
    seeds = [*chosen(0, each=3, soak=500), *MORE]
    for number, seed in enumerate(seeds):
        if evictions.taken and number >= len(seeds) - len(MORE):
            break
        town = ReclaimingTown(seed)
        town.run()
        assert town.books.bound > 0, f"seed {seed} showed nothing: no pod was bound"
    assert evictions.taken
    assert max(Counter(evictions.taken).values()) == 1, evictions.taken
