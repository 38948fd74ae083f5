"""The test of the test: each defect that is planted on purpose is found, by some seed among the first few."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from simulation.universe.planted import PLANTED, expect_nobody
from simulation.universe.run import SimulationError
from simulation.universe.stories import NEVER, Stage, a_pod_is_gone_while_it_starts
from simulation.universe.workload import Habits
from simulation.universe.world import Scale, World

# Each is found by one seed in eight or more: that none of these shows it is luck of one in ten thousand.
MOST_SEEDS = 80
# Users who do more of what makes trouble, so that few seeds are enough.
BUSY = Scale(
    again="World({seed}, BUSY).run(), the defect being planted",
    seconds=180.0,
    faults_every=10.0,
    gpus=2,
    habits=Habits(
        work=20.0,
        memory=36_000,
        tampered=0.4,
        hasty=0.8,
        overcommitted=0.5,
        forced=0.5,
        stubborn=0.5,
        lingering=0.5,
        forever=0.2,
    ),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation that overlooks this would overlook the like of it."""
    PLANTED[name](monkeypatch)
    with pytest.raises(SimulationError, match=r"seed \d+: again with"):
        run_all(range(1, MOST_SEEDS))


def run_all(seeds: Iterable[int]) -> None:
    """Run one after another, to the first that shows something."""
    for seed in seeds:
        World(seed, BUSY).run()


def test_a_slice_that_is_given_before_its_last_container_came_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Luck seldom hits the moment between our word and the process; a story always does."""
    expect_nobody(monkeypatch)
    with pytest.raises(SimulationError, match="over-granted"):
        Stage(a_pod_is_gone_while_it_starts, death=NEVER).play()
