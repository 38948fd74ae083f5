"""What who stands back is told of the one that goes first: its name to its own namespace, and to who may see all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.telling.notices import Notice
from support.queue_stage import Stage, queue


class Held(NamedTuple):
    """What is kept for `large` of queue `a`: in these queues, while `ever` runs and `small` waits in one of them."""

    specs: Mapping[str, QueueSpec]
    beside: str
    asks: int
    notes: Mapping[str, str] = {}


KEPT = {
    "a node": Held(specs={"a": queue(), "b": queue()}, beside="b", asks=200),
    "what a limit leaves": Held(specs={"a": queue(limit=100)}, beside="a", asks=100),
    "what a guarantee leaves": Held(
        specs={"a": queue(guarantee=100)}, beside="a", asks=100, notes={"preemptible": "false"}
    ),
}


def told(held: Held, *, whose: str) -> Notice:
    """What stands in the condition of `small`, a pod of `team`, once `large` has lost patience."""
    stage = Stage(held.specs, nodes=(2,), settings=QueueSettings(patience=10.0, hold=100.0))
    stage.submit("ever", 60, queue=held.beside, notes=held.notes)
    stage.run()
    stage.submit("large", held.asks, queue="a", user=whose, notes=held.notes)
    stage.run()
    stage.submit("small", 40, queue=held.beside, notes=held.notes)
    assert stage.round(after=20.0) == []
    (notice,) = (stage.queues.notice(one) for one in stage.queues.waiting() if one.uid == "small")
    return notice


@pytest.mark.parametrize("held", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(
    ("whose", "said"),
    [("team", "team/pod-large"), ("rival", "a pod of another namespace (queue a, UID large)")],
)
def test_who_goes_first_is_named_in_its_own_namespace_alone(held: Held, whose: str, said: str) -> None:
    """Others are told of which queue it is, and the UID by which an operator finds it."""
    notice = told(held, whose=whose)
    assert notice.reason == "Behind"
    assert notice.message == (
        f"it counts as 40 % of compute and 1000 MiB of memory; {said} has waited for long and goes first"
    )
