"""One that needs nobody to go, and gets no turn, keeps nobody else for long from what takes that somebody goes."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Preemption
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


@pytest.mark.parametrize("many", [1, 6])
def test_who_stands_back_for_a_head_keeps_nobody_from_what_is_theirs(many: int) -> None:
    """However many of them a card has room for that is kept for the head: an owner behind them has its own at once."""
    taking = Preemption(within_queue="SameUser")
    specs = {"q": queue(preemption=taking), "h": queue(), "x": queue()}
    specs |= {f"p{number}": queue(preemption=taking) for number in range(many)}
    settings = QueueSettings(patience=5.0)
    stage = ReclaimStage(specs, nodes=(2, 2, *(1 for _ in range(many))), settings=settings)
    stage.submit("x0", 100, queue="x", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.run(after=1.0) == ["x0"]
    stage.submit("q0", 200, queue="q", notes={"gpus": "2"})
    for number in range(many):
        on = {"gpu-uuid": f"GPU-n{number + 2}-0"}
        stage.submit(f"p{number}-low", 100, queue=f"p{number}", user=f"u{number}", notes=on)
    while stage.run(after=1.0):
        pass
    # The other card of x0's node is kept for it.
    stage.submit("h0", 200, queue="h", user="head", notes={"gpus": "2"})
    while stage.now < 4 * settings.patience:
        assert not stage.run(after=1.0)
    for number in range(many):
        stage.submit(f"p{number}-high", 40 + number, queue=f"p{number}", user=f"u{number}", priority=5)
    stage.submit("q1", 200, queue="q", priority=5, notes={"gpus": "2"})
    found: list[str] = []
    for _ in range(2):
        assert not stage.run(after=1.0)
        found += stage.victims()
    assert found == ["q0"]
