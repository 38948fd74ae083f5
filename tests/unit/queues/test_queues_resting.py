"""What those who rest, since a write or a turn of theirs failed, and those who are shown are told when a queue goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.growing import full, go
from support.queue_stage import Stage, queue

A = queue(limit=100, autoscale=True)
BESIDE = {"b": queue(), "other": queue()}


def shown() -> Stage:
    """It is shown to a cluster autoscaler."""
    stage = full({"a": A, "b": queue()})
    stage.submit("p", 100, queue="a")
    assert go(stage) == ["p"]
    return stage


def not_told() -> Stage:
    """It was to be shown, and the write failed: it rests."""
    stage = full({"a": A, "b": queue()})
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    stage.queues.not_told(stage.pods["p"], now=stage.now)
    return stage


def lost() -> Stage:
    """Its turn led to nothing: it rests."""
    stage = full({"a": A, "b": queue()}, taken=1)
    stage.submit("p", 90, queue="a")
    assert stage.promised(stage.round()) == ["p"]
    stage.lift("p")
    stage.now += 31.0
    stage.desk.tell_time(stage.now)
    return stage


# What becomes of its queue, the word that its condition has then, and what kube-scheduler is told, in part.
GONE = "there is no queue a; pods of namespace team may name b, default, other (label aliquot.dev/queue)"
CHANGES: dict[str, tuple[Mapping[str, QueueSpec], str, str]] = {
    "it is deleted": (BESIDE, "NoQueue", GONE),
    "it is held": ({"a": queue(limit=100, autoscale=True, stop="hold"), **BESIDE}, "QueueHeld", ""),
    "it takes the namespace no more": (
        {"a": queue(namespaces=("else",)), **BESIDE},
        "NoQueue",
        "queue a does not take pods of namespace team",
    ),
}


@pytest.mark.parametrize("state", [shown, not_told, lost])
@pytest.mark.parametrize("change", CHANGES)
def test_who_rests_or_is_shown_is_told_what_became_of_its_queue(state: Callable[[], Stage], change: str) -> None:
    """At once: what it rests for, or was shown for, is of no use to it any more."""
    after, word, sentence = CHANGES[change]
    stage = state()
    stage.queues.queues_seen(after)
    stage.round(after=0.1)
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert notice.reason == word
    assert sentence in notice.message
    assert sentence in stage.queues.why_not(stage.pods["p"])
    assert [found for _, found in stage.queues.words()] == [word]
    assert "autoscaler" not in notice.message
