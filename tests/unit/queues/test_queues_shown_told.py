"""Who is told that it is shown to a cluster autoscaler, or that others are: by what is written, as leaders have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from aliquot_scheduler.queues.said.entry import Plan
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.said.tree import plant
from aliquot_scheduler.queues.telling.standing import Standing
from aliquot_scheduler.queues.telling.whole import waiting_pods
from support.centre import NAMES, WALL, picture_with
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace
SPECS = {
    "o": queue(limit=300),
    **{name: queue("o", limit=200, autoscale=True, autoscale_minutes=15) for name in "ab"},
    "other": queue(),
}


def go(stage: Stage) -> None:
    """A round: who has room is bound, the gates of the others are lifted."""
    found = stage.round(after=1.0)
    room = stage.promised(found)
    stage.bind(*room)
    stage.lift(*[uid for uid in found if uid not in room])


def standing(stage: Stage, specs: Mapping[str, QueueSpec]) -> Standing:
    """What may be read of it."""
    picture = picture_with(*[known.node for known in stage.picture.nodes.values()])
    for pod in stage.pods.values():
        picture.pod_seen(pod)
    plan = Plan(specs=specs, tree=plant(specs))
    return Standing(picture=picture, plan=plan, pods=stage.pods.values(), names=NAMES, wall=WALL + stage.now)


def one_more_has_room(stage: Stage) -> None:
    """It takes the quota that others were shown by."""
    stage.submit("s", 60, queue="a")


def one_is_relabelled(stage: Stage) -> None:
    """It waits in another queue by now."""
    pod = stage.pods["a0"]
    stage.see(replace(pod, metadata=replace(pod.metadata, labels={NAMES.queue: "b"})))


# What becomes of two pods of a, two of b and a group of two of b that are to be shown below a limit of 300.
CHANGES: dict[str, tuple[Callable[[Stage], None], set[str]]] = {
    "nothing": (lambda _: None, {"a0", "a1", "b0"}),
    "one has room beside them": (one_more_has_room, {"a0", "b0"}),
    "one is relabelled": (one_is_relabelled, {"a1", "b0"}),
    "one is gone": (lambda stage: stage.gone("a0"), {"a1", "b0", "b1"}),
}


@pytest.mark.parametrize("row", CHANGES)
def test_what_may_be_read_says_of_the_same_that_they_are_shown(row: str) -> None:
    """As the leader has it, with those that are put out."""
    change, shown = CHANGES[row]
    stage = Stage(SPECS, nodes=(1,))
    stage.submit("x", 40, queue="other")
    go(stage)
    for name in ("a0", "b0", "a1", "b1"):
        stage.submit(name, 100, 2000, queue=name[0])
    go(stage)
    change(stage)
    for _ in range(2):
        go(stage)
    found = standing(stage, SPECS).shown
    assert {uid for uid in stage.pods if uid in found} == stage.queues.register.showings.shown == shown


def test_who_is_not_shown_is_told_for_whom_and_until_when() -> None:
    """By the command, not by the condition, which would change by the minute."""
    stage = Stage(SPECS, nodes=(1,))
    stage.submit("x", 100, queue="other")
    go(stage)
    for number in range(3):
        stage.submit(f"b{number}", 100, queue="b")
    go(stage)
    stage.submit("a0", 200, queue="a")
    go(stage)
    (pod,) = waiting_pods("a", standing(stage, SPECS))
    others = (
        "it is not shown to a cluster autoscaler: 200 % of compute of queue o are shown for team/pod-b0 until "
        "2026-11-21T10:15:02Z, and for 1 more"
    )
    assert others in pod.why
    waiter = stage.queues.register.hall.find("a0")
    assert waiter is not None
    assert "autoscaler" not in stage.queues.notice(waiter).message
    (first, _, _) = waiting_pods("b", standing(stage, SPECS))
    assert first.why.startswith("it is shown to a cluster autoscaler: ")
    assert "not shown" not in first.why
