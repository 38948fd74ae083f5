"""The test of the test, for the centre: each defect that is planted there on purpose is found by some seed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from simulation.universe.planted_in_centre import CROWDED, PLANTED_IN_CENTRE
from simulation.universe.run import SimulationError
from simulation.universe.town import Town

MOST_SEEDS = 100


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", PLANTED_IN_CENTRE)
def test_a_defect_planted_in_the_centre_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that overlooks this would overlook the like of it."""
    PLANTED_IN_CENTRE[name](monkeypatch)
    with pytest.raises(SimulationError, match=r"seed \d+: again with"):
        run_all(range(1, MOST_SEEDS))


def run_all(seeds: Iterable[int]) -> None:
    """Run one after another, to the first that shows something."""
    for seed in seeds:
        Town(seed, CROWDED).run()
