"""How long whoever goes may take for it: an owner waits for no more than the operator says, whatever a pod says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_scheduler.queues.room.graces import grace_to_ask
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import WALL
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

DAY = 86_400
MOST = 120
SPECS = {"a": queue(guarantee=100), "c": queue()}


def stage_of(graces: dict[str, int], **more: Any) -> ReclaimStage:
    """Borrowers of whole GPUs, each with its grace."""
    stage = ReclaimStage(SPECS, nodes=(len(graces),), settings=QueueSettings(max_grace=MOST), **more)
    for uid, grace in graces.items():
        stage.submit(uid, 100, queue="c", spec={"terminationGracePeriodSeconds": grace})
    assert len(stage.run()) == len(graces)
    return stage


def test_a_clearing_stands_for_no_longer_than_the_longest_grace() -> None:
    """And a minute more: then another goes."""
    stage = stage_of({"slow": DAY})
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    (clearing,) = stage.decide(after=1.0)
    assert clearing.until - stage.now == MOST + 60
    assert clearing.until_wall == stage.wall + MOST + 60


@pytest.mark.parametrize(("first", "second", "goes"), [(1, DAY, "c0"), (DAY, 1, "c1"), (30, 29, "c1")])
def test_whoever_is_gone_sooner_goes(first: int, second: int, goes: str) -> None:
    """The card stands still for both until then, so it counts as what is lost."""
    stage = stage_of({"c0": first, "c1": second})
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    assert stage.victims(after=1.0) == [goes]


def test_one_that_leaves_for_a_day_is_not_waited_for() -> None:
    """Another goes in its place, and the owner has its guarantee within the longest grace."""
    stage = stage_of({"quick": 1, "slow": 100})
    stage.leave("slow", grace=DAY)
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    assert stage.victims(after=1.0) == ["quick"]
    assert stage.evict(grace=1.0) == ["quick"]
    stage.gone("quick")
    assert "a0" in stage.run(after=1.0)


def test_one_that_leaves_for_a_day_is_asked_to_hurry_where_it_alone_has_borrowed() -> None:
    """Whoever deletes a pod may give it any grace: that keeps nothing from its owner."""
    stage = stage_of({"slow": 1})
    stage.leave("slow", grace=DAY)
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    assert stage.victims(after=1.0) == ["slow"]
    assert stage.evict(grace=1.0) == ["slow"]
    assert stage.decide(after=1.0) == []
    stage.gone("slow")
    assert "a0" in stage.run(after=1.0)


def test_one_that_leaves_in_time_counts_as_gone() -> None:
    """Nobody goes in addition to it, and it is not asked."""
    stage = stage_of({"quick": 1, "leaving": 1})
    stage.leave("leaving", grace=MOST)
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    (clearing,) = stage.decide(after=1.0)
    assert (clearing.victims, stage.evict()) == ((), [])


def test_one_that_was_asked_and_is_there_a_minute_after_its_time_is_given_up() -> None:
    """The kubelet does not end it: another goes."""
    stage = stage_of({"hangs": 1, "quick": 20})
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    stage.decide(after=1.0)
    assert stage.evict(grace=1.0) == ["hangs"]
    stage.run(after=62.0)
    assert stage.victims(after=20.0) == ["quick"]


@pytest.mark.parametrize(
    ("own", "leaving", "since", "asks"),
    [
        (None, None, 0, None),
        (30, None, 0, None),
        (MOST, None, 0, None),
        (DAY, None, 0, MOST),
        # It leaves already: in time, or to be hurried; the API server counts from when it was asked first.
        (DAY, MOST, 10, None),
        (DAY, DAY, 0, MOST),
        (30, DAY, 0, 30),
        (30, DAY, 3600, 3630),
    ],
)
def test_what_an_eviction_says_of_its_grace(
    own: int | None, leaving: int | None, since: float, asks: int | None
) -> None:
    """Nothing where the pod's own word will do: a pod is never given more time than it asks for."""
    stage = ReclaimStage(SPECS)
    spec = {} if own is None else {"terminationGracePeriodSeconds": own}
    stage.submit("c0", 100, queue="c", spec=spec)
    if leaving is not None:
        stage.leave("c0", grace=leaving)
    assert grace_to_ask(stage.pods["c0"], most=MOST, wall=WALL + since) == asks


def test_a_time_that_no_calendar_knows_is_not_waited_for() -> None:
    """An API server writes what it is told."""
    stage = stage_of({"quick": 1, "odd": 1})
    meta = msgspec.structs.replace(
        stage.pods["odd"].metadata, deletion_timestamp="292277-01-01T00:00:00Z", deletion_grace_period_seconds=2**62
    )
    stage.see(msgspec.structs.replace(stage.pods["odd"], metadata=meta))
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    assert stage.victims(after=1.0) == ["quick"]
