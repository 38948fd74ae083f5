"""The centre, kube-scheduler and two nodes live through minutes of everything that can break, by the seed.

`ALIQUOT_SEED=7` runs that seed alone, with what centre and agents log; `ALIQUOT_SOAK=1` runs thousands.
"""

from __future__ import annotations

import pytest

from simulation.seeds import SOAK, chosen
from simulation.universe.town import Town, TownScale

SHARES = 2


@pytest.mark.timeout(6 * 3600 if SOAK else 240)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_town_survives_whatever_the_seed_brings(share: int) -> None:
    """No GPU is granted too often, no pod is lost, and a successor knows what the leader knew."""
    for seed in chosen(share, each=8, soak=2_500):
        town = Town(seed, TownScale())
        town.run()
        assert town.books.bound > 0, f"seed {seed} showed nothing: no pod was bound"
        assert town.starts > 0, f"seed {seed} showed nothing: no container started"
