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
