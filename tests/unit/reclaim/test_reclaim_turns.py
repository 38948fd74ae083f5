"""One that needs nobody to go, and gets no turn, keeps nobody else for long from what takes that somebody goes."""

from __future__ import annotations

from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

# Looks, one a second, as the evictor has them.
LOOKS = 12


def one_fits_and_one_does_not() -> ReclaimStage:
    """What one owner asks is free; the other asks it where a borrower lies. No round gives either a turn."""
    stage = ReclaimStage({"a": queue(guarantee=100), "b": queue(guarantee=100), "lent": queue()}, nodes=(1, 1))
    stage.submit("lent0", 100, queue="lent", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.run(after=1.0) == ["lent0"]
    stage.submit("a0", 100, queue="a", notes={"gpu-uuid": "GPU-n1-0"})
    stage.submit("b0", 100, queue="b", notes={"gpu-uuid": "GPU-n0-0"})
    return stage


def test_who_gets_no_turn_is_passed_over_after_five_seconds() -> None:
    """Though whether there is anybody to look for is asked before each look."""
    stage = one_fits_and_one_does_not()
    found = [stage.victims(after=1.0) for _ in range(LOOKS)]
    assert found[:6] == [[], [], [], [], [], ["lent0"]]


def test_who_alone_is_left_is_looked_at_again_and_again() -> None:
    """It needs nobody now; it does once somebody else has come there."""
    stage = ReclaimStage({"a": queue(guarantee=100), "lent": queue()}, nodes=(1,))
    stage.submit("a0", 100, queue="a", notes={"gpu-uuid": "GPU-n0-0"})
    for _ in range(LOOKS):
        assert stage.reclaim.anybody(now=stage.now)
        assert stage.victims(after=1.0) == []
