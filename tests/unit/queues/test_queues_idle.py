"""No card idles beside somebody whom nothing keeps out: random trees, beside what was written and asked."""

from __future__ import annotations

import pytest

from support.idle_world import IdleWorld


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_no_card_idles_beside_one_whom_nothing_keeps_out(first: int) -> None:
    """Whatever is guaranteed and limited, of compute and of memory; and no limit is passed."""
    waited = 0
    for seed in range(first, first + 100):
        world = IdleWorld(seed)
        for step in ["come", "come", "come", "end", "come", "end", "end", "come", "come", "end"]:
            getattr(world, step)()
            assert world.rest(), seed
            assert (world.wronged(), world.over_a_limit()) == ([], []), seed
        waited += len(world.asked) > world.cards
    assert waited > 20
