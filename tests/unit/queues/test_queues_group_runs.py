"""A group's name that is used again: the pods of each run start together, whatever is left of the run before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from aliquot_core.objects import OwnerReference, Pod
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

ONE = {"a": queue(), "b": queue()}


def submit(stage: Stage, *uids: str, made_by: str = "", size: int = 2, least: int = 0, where: str = "a") -> None:
    """Pods of one group."""
    notes = {"group-size": str(size), "group-min": str(least or size)}
    for uid in uids:
        stage.submit(uid, 100, queue=where, group="train", notes=notes, made_by=made_by)


def message(stage: Stage, uid: str) -> str:
    """What a pod is told that waits."""
    (waiter,) = [one for one in stage.queues.waiting() if one.uid == uid]
    return stage.queues.notice(waiter).message


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """A group runs, some of it end, then pods come that say the same group."""

    cards: int
    first: Sequence[str] = ("a1", "a2")
    first_by: str = "job1"
    ended: Sequence[str] = ()
    again_by: str = "job2"
    again: Sequence[str] = ("b1", "b2")
    least: int = 0
    where: str = "a"
    size: int = 2
    # Who of them comes in.
    comes: Sequence[str]


ROWS = {
    "one card is not enough for the next run": Again(cards=3, comes=[]),
    "two are": Again(cards=4, comes=["b1", "b2"]),
    "nor is one for a run that waits in another queue": Again(cards=3, where="b", comes=[]),
    "nor beside what is left of the run before": Again(cards=2, ended=["a1"], comes=[]),
    "what its own job makes anew comes alone": Again(
        cards=2, ended=["a1"], again_by="job1", again=["a3"], comes=["a3"]
    ),
    "pods that nobody makes are of the run before, since nobody can tell": Again(
        cards=3, first_by="", again_by="", comes=["b1"]
    ),
    "and so are those of a group that may be smaller": Again(cards=3, size=3, least=2, again=["b1"], comes=["b1"]),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_run_of_a_group_starts_as_a_whole(row: str) -> None:
    """Whatever is left of the run before."""
    case = ROWS[row]
    stage = Stage(ONE, nodes=(case.cards,))
    submit(stage, *case.first, made_by=case.first_by, size=case.size, least=case.least)
    assert stage.run() == list(case.first)
    stage.end(*case.ended)
    submit(stage, *case.again, made_by=case.again_by, size=case.size, least=case.least, where=case.where)
    assert stage.run(after=1.0) == list(case.comes)
    assert stage.run(after=1.0) == []


def test_two_groups_that_run_again_do_not_hold_what_the_other_lacks() -> None:
    """The run before leaves card by card, and each card would take one of either next run."""
    stage = Stage(ONE | {"c": queue(guarantee=200)}, nodes=(4,))
    for name in "ab":
        for uid in (f"{name}0", f"{name}1"):
            stage.submit(uid, 100, queue=name, user=name, group="nightly", notes={"group-size": "2"}, made_by=name)
    assert sorted(stage.run()) == ["a0", "a1", "b0", "b1"]
    for name in "ab":
        for uid in (f"{name}2", f"{name}3"):
            stage.submit(uid, 100, queue=name, user=name, group="nightly", notes={"group-size": "2"}, made_by=name * 2)
    stage.end("a0")
    assert stage.run(after=1.0) == []
    stage.end("b0")
    assert stage.run(after=1.0) == ["a2", "a3"]


def test_a_run_that_lost_one_is_sent_back_though_another_run_has_come_to_its_end() -> None:
    """What has run to its end of the run before is not there for the next."""
    stage = Stage(ONE, nodes=(4,), settings=QueueSettings(stale_gang=60.0))
    submit(stage, "a1", "a2", made_by="job1")
    assert stage.run() == ["a1", "a2"]
    submit(stage, "b1", "b2", made_by="job2")
    assert stage.run(after=1.0) == ["b1", "b2"]
    stage.end("a1")
    pod = stage.pods["b1"]
    stage.see(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Failed")))
    assert stage.queues.stale_gangs(now=stage.now) == []
    assert [pod.metadata.uid for pod in stage.queues.stale_gangs(now=stage.now + 60.0)] == ["b2"]


def test_who_waits_for_its_run_is_told_that_the_one_before_does_not_count() -> None:
    """With how many of it are there."""
    stage = Stage(ONE, nodes=(4,))
    submit(stage, "a1", "a2", made_by="job1")
    assert stage.run() == ["a1", "a2"]
    submit(stage, "b1", made_by="job2")
    assert stage.run(after=1.0) == []
    assert message(stage, "b1") == (
        "group train starts with 2 pods, and 1 is there (not counted: 2 of an earlier run): create 1 more, or lower "
        "aliquot.dev/group-min"
    )


def test_whose_run_has_ended_waits_for_one_of_its_own() -> None:
    """It was to spare beside a run of its job; when that is gone it starts with as many as any other."""
    stage = Stage(ONE, nodes=(2,))
    submit(stage, "a1", "a2", made_by="job1")
    assert stage.run() == ["a1", "a2"]
    submit(stage, "a3", made_by="job1")
    assert stage.run(after=1.0) == []
    stage.end("a1", "a2")
    assert stage.run(after=1.0) == []
    submit(stage, "a4", made_by="job1")
    assert stage.run(after=1.0) == ["a3", "a4"]


def test_whoever_leads_next_knows_of_which_run_each_is() -> None:
    """By what is written on the pods."""
    before = Stage(ONE, nodes=(5,))
    submit(before, "a1", "a2", made_by="job1")
    assert before.run() == ["a1", "a2"]
    submit(before, "b1", "b2", made_by="job2")
    assert before.run(after=1.0) == ["b1", "b2"]
    after = Stage(ONE, nodes=(5,))
    for pod in before.pods.values():
        after.see(pod)
    assert after.queues.books.let_in.keys() == before.queues.books.let_in.keys()
    assert {gang[5] for gang in after.queues.books.let_in} == {"a1", "b1"}


@pytest.mark.parametrize("lost", ["launcher", "w1"])
def test_a_group_that_several_make_is_of_one_run(lost: str) -> None:
    """A launcher by one Job and workers by another: whoever loses a turn comes in again beside the others."""
    stage = Stage(ONE, nodes=(4,))
    submit(stage, "launcher", made_by="jl", size=4)
    submit(stage, "w1", "w2", "w3", made_by="jw", size=4)
    assert stage.round() == ["launcher", "w1", "w2", "w3"]
    stage.bind(*({"launcher", "w1", "w2", "w3"} - {lost}))
    assert stage.round(after=31.0) == []
    assert lost in [uid for _ in range(40) for uid in stage.run(after=10.0)]


def test_a_group_of_which_some_come_later_takes_in_what_another_makes() -> None:
    """Four Jobs of one pod each, of which three are enough."""
    stage = Stage(ONE, nodes=(4,))
    for uid in ("p0", "p1", "p2", "p3"):
        submit(stage, uid, made_by=uid, size=4, least=3)
    assert sorted([*stage.run(), *stage.run(after=1.0)]) == ["p0", "p1", "p2", "p3"]


def test_whoever_has_run_to_its_end_is_not_missed_after_queues_were_written_anew() -> None:
    """Everybody is put down anew by that."""
    stage = Stage(ONE, nodes=(4,), settings=QueueSettings(stale_gang=60.0))
    submit(stage, "a1", "a2")
    assert stage.run() == ["a1", "a2"]
    stage.end("a1")
    stage.queues.queues_seen(ONE | {"c": queue(limit=100)})
    stage.submit("y", 300, queue="a", notes={"gpus": "3"})
    stage.run(after=1.0)
    submit(stage, "b1", "b2")
    stage.run(after=1.0)
    for _ in range(4):
        stage.now += 60.0
        assert stage.queues.stale_gangs(now=stage.now) == []


def test_pods_of_one_deployment_are_of_one_run_whatever_replicaset_made_them() -> None:
    """Else the first pod of a new version would wait for as many as the group starts with; any other set is its own."""
    stage = Stage(ONE, nodes=(3,))
    submit(stage, "a1", "a2")
    for uid in ("a1", "a2"):
        stage.see(_of_set(stage, uid, "serve-1", of_deployment="1"))
    assert stage.run() == ["a1", "a2"]
    submit(stage, "b1")
    stage.see(_of_set(stage, "b1", "serve-2", of_deployment="2"))
    assert stage.run(after=1.0) == ["b1"]
    submit(stage, "c1")
    stage.see(_of_set(stage, "c1", "serve-3"))
    stage.end("b1")
    assert stage.run(after=1.0) == []


def _of_set(stage: Stage, uid: str, name: str, *, of_deployment: str = "") -> Pod:
    pod = stage.pods[uid]
    owner = OwnerReference(kind="ReplicaSet", name=name, uid=name, controller=True)
    labels = pod.metadata.labels | ({"pod-template-hash": of_deployment} if of_deployment else {})
    meta = msgspec.structs.replace(pod.metadata, owner_references=[owner], labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)
