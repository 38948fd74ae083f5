"""Pods that wait where they may not: they are told so by a word of its own, with the queues that they may name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES
from support.queue_stage import Stage, queue

CLOSED = queue(namespaces=())
INNER = "queue own has queues below it, and pods wait only in those that have none"
# What becomes of the queues while a pod of namespace `team` waits in `own`, and what it is told.
CHANGES: dict[str, tuple[Mapping[str, QueueSpec], str]] = {
    "it gets children": (
        {"own": queue(), "in": queue("own"), "shut": queue("own", namespaces=()), "away": queue()},
        f"{INNER}; pods of namespace team may name in",
    ),
    "it gets a child that takes nobody": (
        {"own": queue(), "shut": queue("own", namespaces=()), "away": queue()},
        f"{INNER}; pods of namespace team may name away, default",
    ),
    "it is deleted": (
        {"away": queue()},
        "there is no queue own; pods of namespace team may name away, default",
    ),
    "the last queues are deleted": (
        {},
        "there is no queue own; pods of namespace team may name default",
    ),
    "it takes others": (
        {"own": CLOSED, "away": queue()},
        "queue own does not take pods of namespace team; pods of namespace team may name away, default",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_who_may_not_wait_in_its_queue_any_more_is_told_where_it_may(change: str) -> None:
    """To ask for less would not help it; and nothing is held back for it."""
    after, said = CHANGES[change]
    stage = Stage({"own": queue(), "away": queue()}, nodes=(1,))
    stage.submit("holds", 100, queue="away")
    assert stage.run() == ["holds"]
    stage.submit("waits", 100, queue="own")
    assert stage.run() == []
    stage.queues.queues_seen(after)
    assert stage.run(after=1.0) == []
    (waiter,) = stage.queues.waiting()
    notice = stage.queues.notice(waiter)
    assert (notice.reason, notice.message) == ("NoQueue", f"{said} (label {NAMES.queue})")


def word_of(stage: Stage, uid: str) -> tuple[str, str]:
    """Why a pod waits, as it is told."""
    (waiter,) = (one for one in stage.queues.waiting() if one.uid == uid)
    notice = stage.queues.notice(waiter)
    return notice.reason, notice.message


@pytest.mark.parametrize("named_by", ["pod", "namespace"])
def test_who_waits_where_the_last_queue_was_deleted_comes_in_when_it_is_made_again(named_by: str) -> None:
    """As a replacement by force does; what ran there meanwhile is charged to it again."""
    stage = Stage({"only": queue(limit=100)}, nodes=(4,))
    if named_by == "namespace":
        stage.queues.namespace_seen("team", queue="only")
    named = "only" if named_by == "pod" else ""
    stage.submit("runs", 100, queue=named)
    stage.submit("waits", 100, queue=named)
    assert stage.run() == ["runs"]
    stage.queues.queues_seen({})
    assert stage.run(after=60.0) == []
    assert word_of(stage, "waits")[0] == "NoQueue"
    stage.queues.queues_seen({"only": queue(limit=100, stop="hold")})
    assert stage.run(after=60.0) == []
    assert word_of(stage, "waits")[0] == "QueueHeld"
    stage.queues.queues_seen({"only": queue(limit=200)})
    assert (stage.run(after=1.0), stage.used("only")[0]) == (["waits"], 200)


def test_where_no_queue_was_made_who_names_none_waits_in_the_default() -> None:
    """Nobody goes for others there, so who may never be evicted needs no guarantee; who names one comes in nowhere."""
    stage = Stage({}, nodes=(1,))
    stage.submit("named", 10, queue="own")
    stage.submit("firm", 10, notes={"preemptible": "false"})
    assert stage.run() == ["firm"]
    stage.queues.namespace_seen("team", queue="own")
    stage.submit("at home", 10)
    assert stage.run(after=1.0) == []
    own = "there is no queue own; no queue takes pods of namespace team: an operator can label it with one's name "
    own += f"(label {NAMES.queue}), or add it to spec.namespaces of one"
    assert word_of(stage, "at home") == ("NoQueue", own)
