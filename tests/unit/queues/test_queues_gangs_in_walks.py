"""Names that are used again: Jobs that start together by few names, of two users, replaced while they go."""

from __future__ import annotations

import pytest

from support.gang_world import STEPS, GangWorld

ALL = [step.__name__ for step, times in STEPS.items() for _ in range(times)]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_gangs_of_one_name_start_whole_and_come_to_their_end(first: int) -> None:
    """Each starts with its own, none holds cards for long that waits for others, and no two block each other."""
    for seed in range(first, first + 20):
        world = GangWorld(seed)
        for name in world.chance.choices(ALL, k=80):
            getattr(world, name)()
        world.check_to_the_end()
