"""The test of the test: each defect that is planted on purpose is found, by some seed among the first few."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from simulation.universe.planted import PLANTED
from simulation.universe.workload import Habits
from simulation.universe.world import Scale, SimulationError, World

MOST_SEEDS = 40
# Users who do more of what makes trouble, so that few seeds are enough.
BUSY = Scale(seconds=180.0, habits=Habits(tampered=0.3, forced=0.5, lingering=0.5))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that overlooks this would overlook the like of it."""
    PLANTED[name](monkeypatch)
    with pytest.raises(SimulationError, match=r"again with ALIQUOT_SEED=\d+"):
        run_all(range(1, MOST_SEEDS))


def run_all(seeds: Iterable[int]) -> None:
    """Run one after another, to the first that shows something."""
    for seed in seeds:
        World(seed, BUSY).run()
