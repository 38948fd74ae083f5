"""A node lives through minutes of everything that can break, by the seed; what must always hold, holds.

`ALIQUOT_SEED=7` runs that seed alone, with the agent's own log; `ALIQUOT_SOAK=1` runs thousands.
"""

from __future__ import annotations

import pytest

from simulation.seeds import SOAK, chosen
from simulation.universe.world import Scale, World

SHARES = 4


@pytest.mark.timeout(6 * 3600 if SOAK else 240)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_node_survives_whatever_the_seed_brings(share: int) -> None:
    """No GPU is ever over-granted, no bad grant ever runs, and when the faults end all is well within minutes."""
    for seed in chosen(share, each=10, soak=2_500):
        world = World(seed, Scale())
        world.run()
        assert world.judge.starts > 0, f"seed {seed} showed nothing: no container started"
