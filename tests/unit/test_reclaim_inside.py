"""Whoever is inside a guarantee is in, whatever is lent, kept or borrowed in pieces beside it; and it comes to rest."""

from __future__ import annotations

import pytest

from support.lent_world import LentWorld


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_at_rest_everybody_is_in_who_is_inside_a_guarantee(first: int) -> None:
    """Trees of three levels that lend all, a part or nothing; pods larger than a guarantee; all come again who go."""
    for seed in range(first, first + 25):
        world = LentWorld(seed)
        for _ in range(9):
            world.chance.choice([world.come, world.come, world.end])()
            assert world.rest(), seed
            assert world.wronged() == [], seed
