"""Pods whose queue was deleted: they run on, and go for others last."""

from __future__ import annotations

from aliquot_scheduler.queues.said.spec import Preemption
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

SPECS = {
    "left": queue(guarantee=200, preemption=Preemption(min_run_seconds=36_600)),
    "right": queue(guarantee=200),
    "free": queue(),
}
WITHOUT = {name: spec for name, spec in SPECS.items() if name != "left"}


def stage_of(*, borrower: bool) -> ReclaimStage:
    """Four cards in use: one by who borrows, or by right; two inside a guarantee; `right` may have another one."""
    stage = ReclaimStage(SPECS, nodes=(4,))
    stage.submit("old", 100, queue="free" if borrower else "right", user="o")
    assert stage.run(after=1.0) == ["old"]
    stage.submit("r", 100, queue="right", user="r")
    assert stage.run(after=1.0) == ["r"]
    stage.submit("l1", 100, queue="left", user="l")
    stage.submit("l2", 100, queue="left", user="l")
    assert sorted(stage.run(after=1.0)) == ["l1", "l2"]
    # The leader looks at everybody now and then.
    assert stage.victims() == []
    return stage


def test_who_waits_in_a_queue_that_is_gone_is_told_so_by_its_word() -> None:
    """It would fit: what lacks is its queue."""
    stage = ReclaimStage(SPECS, nodes=(4,))
    for number in range(5):
        stage.submit(f"f{number}", 100, queue="left", user="l")
    stage.run()
    stage.queues.queues_seen(WITHOUT)
    stage.run(after=1.0)
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    said = "there is no queue left; pods of namespace l may name default, free, right (label aliquot.dev/queue)"
    assert (notice.reason, notice.message) == ("NoQueue", said)


def test_who_borrows_goes_before_one_whose_queue_is_gone() -> None:
    """However long the borrower has run, and though nothing is guaranteed to a deleted queue any more."""
    stage = stage_of(borrower=True)
    stage.queues.queues_seen(WITHOUT)
    stage.submit("wants", 100, queue="right", user="r")
    assert stage.run(after=1.0) == []
    assert stage.victims(after=10_000.0) == ["old"]


def test_who_borrows_goes_also_where_both_are_needed() -> None:
    """For a pod of two cards the borrower's goes, and one more."""
    stage = ReclaimStage({**SPECS, "right": queue(guarantee=300)}, nodes=(4,))
    stage.submit("old", 100, queue="free", user="o")
    stage.run(after=1.0)
    stage.submit("l1", 100, queue="left", user="l")
    stage.submit("l2", 100, queue="left", user="l")
    stage.submit("r", 100, queue="right", user="r")
    assert sorted(stage.run(after=1.0)) == ["l1", "l2", "r"]
    assert stage.victims() == []
    stage.queues.queues_seen({**WITHOUT, "right": queue(guarantee=300)})
    stage.submit("wants", 200, queue="right", user="r")
    assert stage.run(after=1.0) == []
    goes = stage.victims(after=10_000.0)
    assert len(goes) == 2
    assert "old" in goes


def test_the_last_who_go_have_run_as_long_as_their_queue_let_them() -> None:
    """Its minRunSeconds holds on when it is gone; then owners get what they are guaranteed."""
    stage = ReclaimStage({**SPECS, "right": queue(guarantee=300)}, nodes=(4,))
    for uid in ("r1", "r2"):
        stage.submit(uid, 100, queue="right", user="r")
    for uid in ("l1", "l2"):
        stage.submit(uid, 100, queue="left", user="l")
    assert len(stage.run(after=1.0)) == 4
    assert stage.victims() == []
    stage.queues.queues_seen({**WITHOUT, "right": queue(guarantee=300)})
    stage.submit("wants", 100, queue="right", user="r")
    assert stage.run(after=1.0) == []
    assert stage.victims(after=500.0) == []
    (waits,) = stage.queues.register.waiting()
    assert "2 pods have not run for minRunSeconds" in stage.queues.register.standoffs.of(waits)
    assert stage.victims(after=200.0) in (["l1"], ["l2"])


def test_who_is_partly_inside_its_guarantee_goes_before_one_whose_queue_is_gone() -> None:
    """All that a queue of today has borrowed is taken back first."""
    specs = {**SPECS, "part": queue(guarantee=100)}
    stage = ReclaimStage(specs, nodes=(4,))
    stage.submit("p", 200, queue="part", user="p")
    stage.submit("l1", 100, queue="left", user="l")
    stage.submit("r", 100, queue="right", user="r")
    assert len(stage.run(after=1.0)) == 3
    stage.queues.queues_seen({name: spec for name, spec in specs.items() if name != "left"})
    stage.submit("wants", 100, queue="right", user="r")
    assert stage.run(after=1.0) == []
    assert stage.victims(after=10_000.0) == ["p"]
