"""A group whose pods are replaced while it waits: it has waited since the first of them did."""

from __future__ import annotations

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

SETTINGS = QueueSettings(patience=100.0, hold=1_000.0)
TWO_OF_TWO = {"gpus": "2", "group-size": "2"}


def full() -> Stage:
    """Both nodes are in use by `b`, a pod on each card."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4, 4), settings=SETTINGS)
    for number in range(8):
        stage.submit(f"b{number}", queue="b")
    assert len(stage.run()) == 8
    return stage


def joins(stage: Stage, *uids: str, priority: int = 0) -> None:
    """Pods of one group, of two GPUs each, of which two start together."""
    for uid in uids:
        stage.submit(uid, 200, queue="a", group="g", notes=TWO_OF_TWO, made_by="job", priority=priority)


def kept(stage: Stage) -> list[str]:
    """For whom a node is kept."""
    return [uid for uid, nodes in stage.queues.register.memory.kept(now=stage.now).items() if nodes]


def impatient() -> Stage:
    """A group for which a node is kept, by the first of its pods."""
    stage = full()
    joins(stage, "first", "second")
    assert stage.run() == []
    assert stage.run(after=120.0) == []
    assert kept(stage) == ["first"]
    return stage


@pytest.mark.parametrize("goes", ["first", "second"])
def test_its_wait_goes_on(goes: str) -> None:
    """Whichever of its pods is deleted: the node is kept once it is whole again."""
    stage = impatient()
    stage.gone(goes)
    assert stage.run(after=1.0) == []
    assert kept(stage) == []
    joins(stage, "new")
    assert stage.run(after=1.0) == []
    assert kept(stage) == [({"first", "second"} - {goes}).pop()]


def test_its_wait_goes_on_by_one_who_comes_before_the_others() -> None:
    """The new one is the first of them, by its priority."""
    stage = impatient()
    stage.gone("first")
    joins(stage, "new", priority=1)
    assert stage.run(after=1.0) == []
    assert kept(stage) == ["new"]


def test_it_begins_anew_once_none_of_them_waits() -> None:
    """A group of that name is another one then."""
    stage = impatient()
    stage.gone("first")
    stage.gone("second")
    joins(stage, "third", "fourth")
    assert stage.run(after=1.0) == []
    assert kept(stage) == []
    assert stage.run(after=120.0) == []
    assert kept(stage) == ["third"]


def test_time_for_which_it_could_not_come_counts_for_no_other_either() -> None:
    """Its user was in doubt for a while when the first of them went."""
    stage = full()
    joins(stage, "first", "second")
    assert stage.run() == []
    patience = stage.queues.register.memory.patience
    patience.stand_still({"first"}, now=stage.now + 10.0)
    patience.hand_on("first", to="second")
    patience.stand_still(set(), now=stage.now + 90.0)
    assert not patience.is_impatient("second", now=stage.now + 110.0)
    assert patience.is_impatient("second", now=stage.now + 190.0)
