"""Whoever is inside a guarantee is in, whatever is lent, kept or borrowed in pieces beside it; and it comes to rest."""

from __future__ import annotations

import pytest

from support.lent_world import LentWorld


def expect_nobody_wronged(seed: int, *, steps: int) -> None:
    """So many steps, each until all is at rest."""
    world = LentWorld(seed)
    for _ in range(steps):
        world.chance.choice([world.come, world.come, world.end])()
        assert world.rest(), seed
        assert world.wronged() == [], seed


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_at_rest_everybody_is_in_who_is_inside_a_guarantee(first: int) -> None:
    """Trees of three levels that lend all, a part or nothing; pods larger than a guarantee; all come again who go."""
    for seed in range(first, first + 25):
        expect_nobody_wronged(seed, steps=9)


# In each of these somebody inside a guarantee stood behind a larger one of its own queue, for as long as that may be.
@pytest.mark.parametrize("seed", [18, 311, 343, 450, 878, 6479, 6518])
def test_who_stands_behind_the_head_of_its_own_queue_passes_it_in_time(seed: int) -> None:
    """It is not at rest before the time is over for which a head may hold others up."""
    expect_nobody_wronged(seed, steps=20)
