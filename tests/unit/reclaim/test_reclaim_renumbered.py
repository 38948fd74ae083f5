"""By other queues or hardware shapes get other numbers: what is known of one is never taken for known of another."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.reclaim.in_the_way import Asked, asked_of
from aliquot_scheduler.reclaim.residents import Budget
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

OPEN: Mapping[str, QueueSpec] = {"red": queue(guarantee=100), "blue": queue()}
# Something else is counted, so that all are read anew; it keeps nobody out.
RENUMBERS: Mapping[str, QueueSpec] = {**OPEN, "blue": queue(models={"*A100*": ModelQuota(compute=Quota(limit=10_000))})}
KEPT = [Budget(pods=frozenset({"b"}), allowed=0, name="blue/mine")]
GRACE = 600.0
# As often as the centre looks again at one for whom nobody went.
LOOK = 11.0


def lent() -> ReclaimStage:
    """One card, which `blue` has borrowed."""
    stage = ReclaimStage(OPEN, nodes=(1,), settings=QueueSettings(budget_grace=GRACE))
    stage.submit("b", 100, queue="blue")
    assert stage.run() == ["b"]
    return stage


def number_of(stage: ReclaimStage, uid: str) -> int:
    """Of a pod's shape."""
    return next(one.number for one in stage.queues.waiting() if one.uid == uid)


def asked_by(stage: ReclaimStage, uid: str) -> Asked:
    """What a pod asks, as searches know it."""
    register = stage.queues.register
    waiter = next(one for one in stage.queues.waiting() if one.uid == uid)
    return asked_of(register.hall.candidate(waiter, books=register.books))


def goes_for(stage: ReclaimStage, *, until: float) -> list[str]:
    """Who goes by then, though its budget keeps it."""
    while stage.now < until:
        stage.run()
        if found := [one.uid for clearing in stage.decide(budgets=KEPT, after=LOOK) for one in clearing.victims]:
            return found
    return []


@pytest.mark.parametrize(("specs", "renumbered"), [(OPEN, False), (RENUMBERS, True)], ids=["as it was", "renumbered"])
def test_nobody_is_passed_over_since_nothing_was_found_for_another_shape(
    specs: Mapping[str, QueueSpec],
    renumbered: bool,
) -> None:
    """A budget kept room from one that is gone; the next one, which has that one's number, is looked for at once."""
    stage = lent()
    stage.submit("v", 90, queue="red")
    stage.run(after=LOOK)
    known = number_of(stage, "v")
    assert stage.decide(budgets=KEPT) == []
    stage.gone("v")
    stage.queues.queues_seen(specs)
    stage.submit("w", 60, queue="red")
    stage.run(after=1.0)
    assert (number_of(stage, "w") == known) is renumbered
    assert stage.victims() == ["b"]


def test_the_grace_of_a_budget_goes_on_for_whom_it_runs() -> None:
    """Else each edit of a queue would lengthen it."""
    stage = lent()
    stage.submit("first", 70, queue="red")
    stage.gone("first")
    stage.submit("v", 90, queue="red")
    known = number_of(stage, "v")
    assert goes_for(stage, until=GRACE / 2) == []
    stage.queues.queues_seen(RENUMBERS)
    assert number_of(stage, "v") != known
    assert goes_for(stage, until=GRACE - LOOK) == []
    assert goes_for(stage, until=GRACE + 3 * LOOK) == ["b"]


def test_nobody_is_given_the_grace_that_ran_for_another_shape() -> None:
    """It begins with the first look at who has that one's number now."""
    stage = lent()
    stage.submit("v", 90, queue="red")
    assert goes_for(stage, until=GRACE / 2) == []
    known = number_of(stage, "v")
    stage.gone("v")
    stage.queues.queues_seen(RENUMBERS)
    stage.submit("w", 60, queue="red")
    assert number_of(stage, "w") == known
    began = stage.now
    assert goes_for(stage, until=began + GRACE - LOOK) == []
    assert goes_for(stage, until=began + GRACE + 3 * LOOK) == ["b"]


def test_nobody_stands_in_line_for_moves_by_the_number_of_another_shape() -> None:
    """While anybody does, nobody else has others moved for it."""
    stage = lent()
    searches = stage.reclaim._searches
    for uid, compute in (("w", 60), ("v", 90)):
        stage.submit(uid, compute, queue="red")
    stage.run()
    searches.had_too_few(asked_by(stage, "v"), until=stage.now + GRACE)
    stage.gone("v")
    stage.decide(budgets=KEPT)
    assert not searches.may(asked_by(stage, "w"))
    stage.queues.queues_seen(RENUMBERS)
    stage.decide(budgets=KEPT)
    assert searches.may(asked_by(stage, "w"))


@pytest.mark.parametrize(("specs", "renumbered"), [(OPEN, False), (RENUMBERS, True)], ids=["as it was", "renumbered"])
def test_no_move_is_left_undone_since_none_helped_another_shape(
    specs: Mapping[str, QueueSpec],
    renumbered: bool,
) -> None:
    """More than there is can't be had by moves; a whole card can, for one who has the number of that one."""
    stage = ReclaimStage(OPEN, nodes=(2,), moves_per_hour=10)
    stage.consolidate()
    stage.consolidate(after=3_600.0)
    for number in range(2):
        stage.submit_made(f"half{number}", 50, by=f"job{number}", queue="blue", notes={"placement": "spread"})
        stage.run(after=1.0)
    stage.submit("v", 110, queue="red")
    stage.run()
    known = number_of(stage, "v")
    assert stage.consolidate(after=61.0) == []
    stage.gone("v")
    stage.queues.queues_seen(specs)
    stage.submit("whole", 100, queue="red")
    stage.run()
    assert (number_of(stage, "whole") == known) is renumbered
    # So long ago that any move pays.
    stage.queues.register.joined["whole"] = stage.now - 60_000.0
    assert len(stage.consolidate(after=1.0)) == 1
