"""A leader that is blind for long is not alive."""

from __future__ import annotations

from aliquot_scheduler.centre.sight import PATIENCE, Sight
from support.clocks import VirtualClock


async def test_a_leader_that_is_blind_for_minutes_says_so() -> None:
    """Counted anew once it has seen again; whoever does not lead is blind for no one."""
    clock, why = VirtualClock(), "nothing was heard of pods for 400 s"
    blind = [""]
    sight = Sight(clock=clock, blind=lambda: blind[0])
    assert sight.lost() == []
    await clock.advance(2 * PATIENCE)
    blind[0] = why
    assert sight.lost() == []
    await clock.advance(PATIENCE)
    assert sight.lost() == []
    blind[0] = ""
    assert sight.lost() == []
    blind[0] = why
    assert sight.lost() == []
    await clock.advance(PATIENCE + 1)
    assert sight.lost() == [f"leads, and can't decide for 301 s: {why}"]
