"""One of a group who may not go yet guards itself alone: else a borrower keeps what it lent by adding small pods."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.instants import second_time
from aliquot_core.objects import PodCondition
from aliquot_scheduler.queues.said.spec import Preemption
from support.queue_stage import A100, H100, queue
from support.reclaim_stage import ReclaimStage

MIN_RUN = 600


def lent(*, min_run: int) -> ReclaimStage:
    """A borrower's group of two at its minimum on the owner's two cards, for longer than it may stay; others idle."""
    borrower = queue(preemption=Preemption(min_run_seconds=min_run))
    stage = ReclaimStage({"red": queue(guarantee=200), "blue": borrower}, nodes=(2, 2), models={0: A100, 1: H100})
    for uid in ("b0", "b1"):
        join(stage, uid, 100, model=A100)
    stage.bind(*stage.promised(stage.round(after=1.0)))
    runs(stage)
    stage.now += MIN_RUN + 100.0
    return stage


def join(stage: ReclaimStage, uid: str, compute: int, *, model: str) -> None:
    """One more of the group."""
    notes = {"group-size": "9", "group-min": "2", "gpu-model": model}
    stage.submit(uid, compute, 1_000, queue="blue", group="g", notes=notes)


def runs(stage: ReclaimStage) -> None:
    """Kubernetes says of whoever is bound since when."""
    said = PodCondition(type="PodScheduled", status="True", last_transition_time=second_time(stage.wall))
    for pod in list(stage.pods.values()):
        known = pod.status.conditions
        if pod.spec.node_name and not any(one.type == said.type for one in known):
            status = msgspec.structs.replace(pod.status, conditions=[*known, said])
            stage.see(msgspec.structs.replace(pod, status=status))


@pytest.mark.parametrize("is_bound", [True, False])
def test_one_that_has_just_come_keeps_nobody_else_of_its_group(*, is_bound: bool) -> None:
    """Whether it has not run long enough, or is on its way: the others go, and it stays."""
    stage = lent(min_run=MIN_RUN if is_bound else 0)
    join(stage, "small", 1, model=H100)
    assert stage.round(after=1.0) == ["small"]
    if is_bound:
        stage.bind("small")
        runs(stage)
    stage.submit("own", 200, queue="red", notes={"gpu-model": A100, "gpus": "2"})
    assert sorted(stage.reclaimed()) == ["b0", "b1"]
    assert "own" in stage.run(after=1.0)


def test_a_group_that_is_about_to_start_is_let_start() -> None:
    """One of two is bound, and the other is on its way."""
    stage = ReclaimStage({"red": queue(guarantee=200), "blue": queue()}, nodes=(2,))
    for uid in ("b0", "b1"):
        join(stage, uid, 100, model="*")
    assert sorted(stage.round(after=1.0)) == ["b0", "b1"]
    stage.bind("b0")
    stage.submit("own", 100, queue="red")
    assert stage.victims() == []
