"""What the next leader makes of pods that the one before has let in: charged where they were let in, or sent back."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace
TWO = {"a": queue(), "b": queue()}


def test_a_bound_pod_is_charged_where_it_was_let_in_whoever_leads() -> None:
    """Its namespace has another queue by now, and so have those of its pods that wait."""
    specs = {"a": queue(namespaces=()), "b": queue(namespaces=())}
    stage = Stage(specs, nodes=(1,))
    stage.queues.namespace_seen("team", queue="a")
    stage.submit("runs", 100)
    assert stage.run() == ["runs"]
    stage.submit("waits", 100)
    stage.queues.namespace_seen("team", queue="b")
    assert [waiter.queue for waiter in stage.queues.waiting()] == ["b"]
    assert (stage.used("a")[0], stage.used("b")[0]) == (100, 0)
    after = Stage(specs, nodes=(1,))
    after.queues.namespace_seen("team", queue="b")
    for pod in stage.pods.values():
        after.see(pod)
    assert (after.used("a")[0], after.used("b")[0]) == (100, 0)
    assert [waiter.queue for waiter in after.queues.waiting()] == ["b"]
    after.end("runs")
    assert after.run() == ["waits"]
    assert (after.used("a")[0], after.used("b")[0]) == (0, 100)


def test_who_is_on_the_way_is_charged_where_it_was_let_in_whoever_leads() -> None:
    """Its namespace has another queue by now; only if its turn is taken back does it wait there."""
    specs = {"a": queue(namespaces=(), limit=100), "b": queue(namespaces=(), limit=100)}
    stage = Stage(specs, nodes=(4,))
    stage.queues.namespace_seen("team", queue="a")
    stage.submit("comes", 100)
    assert stage.round() == ["comes"]
    stage.lift("comes")
    after = Stage(specs, nodes=(4,))
    after.queues.namespace_seen("team", queue="b")
    after.see(stage.pods["comes"])
    assert after.round() == []
    assert (after.used("a")[0], after.used("b")[0]) == (100, 0)
    after.submit("new", 100)
    assert after.round(after=29.0) == ["new"]
    assert after.round(after=2.0) == []
    assert (after.used("a")[0], after.used("b")[0]) == (0, 100)
    assert [waiter.queue for waiter in after.queues.waiting()] == ["b"]


@pytest.mark.parametrize("anew", [False, True], ids=["", "another leader"])
@pytest.mark.parametrize("is_bound", [False, True], ids=["on its way", "bound"])
def test_who_is_let_in_and_relabelled_is_charged_where_it_was_let_in(*, is_bound: bool, anew: bool) -> None:
    """Else a tenant would give quota back that it goes on using; once the turn is lost the label counts."""
    specs = {"a": queue(limit=100), "b": queue(limit=100)}
    stage = Stage(specs)
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    (stage.bind if is_bound else stage.lift)("p")
    pod = stage.pods["p"]
    stage.see(replace(pod, metadata=replace(pod.metadata, labels={NAMES.queue: "b"})))
    if anew:
        before, stage = stage, Stage(specs)
        stage.see(before.pods["p"])
    stage.submit("q", 100, queue="a")
    assert stage.round(after=1.0) == []
    assert (stage.used("a")[0], stage.used("b")[0]) == (100, 0)
    assert ("q" in stage.round(after=31.0)) is not is_bound
    # It may have its next turn at once.
    where = {waiter.uid: waiter.queue for waiter in stage.queues.waiting()}
    assert (where.get("p") or stage.queues.charged_in("p")) == ("a" if is_bound else "b")


@pytest.mark.parametrize(
    ("notes", "specs"),
    [({}, {"a": queue(namespaces=()), "b": queue()}), ({NAMES.charged: "a"}, {"b": queue()})],
    ids=["passed-its-gate-by", "queue-gone"],
)
def test_who_has_no_gate_and_may_not_be_where_it_says_waits(notes: dict[str, str], specs: dict[str, QueueSpec]) -> None:
    """A gate that was not lifted by a queue makes nobody a member of it; a queue that is gone has none."""
    stage = Stage(specs, nodes=(4,))
    pod = Stage(TWO).submit("p", 100, queue="a")
    meta = replace(pod.metadata, annotations=pod.metadata.annotations | notes)
    stage.see(replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=[])))
    assert stage.round() == []
    assert "queue a" in stage.queues.why_not(stage.pods["p"])
    assert len(stage.queues.waiting()) == 1


def test_a_new_leader_charges_what_it_finds() -> None:
    """Bound pods are charged by their grants; who was let in and is not bound is charged, and taken back in time."""
    old = Stage({"a": queue(limit=200)}, nodes=(4,))
    for uid in "pqr":
        old.submit(uid, 100, queue="a")
    assert old.round() == ["p", "q"]
    old.bind("p")
    new = Stage({"a": queue(limit=200)}, nodes=(4,))
    new.see(old.pods["p"])
    lifted = old.pods["q"]
    new.see(type(lifted)(metadata=lifted.metadata, spec=type(lifted.spec)(containers=lifted.spec.containers)))
    new.see(old.pods["r"])
    assert new.round() == []
    assert new.used("a")[0] == 200
    assert new.round(after=29.0) == []
    assert new.queues.why_not(new.pods["q"]) == ""
    assert new.round(after=1.0) == ["q"]
    assert new.used("a")[0] == 200


def test_a_new_leader_lets_nobody_over_a_limit_whom_the_old_one_had_taken_back() -> None:
    """A gate that was lifted tells nothing of quota: whoever is over the limit waits for another turn."""
    new = Stage({"a": queue(limit=200)}, nodes=(4,))
    for uid in "pqr":
        pod = new.submit(uid, 100, queue="a")
        new.see(replace(pod, spec=replace(pod.spec, scheduling_gates=[])))
        new.queues.pod_gone(uid)
        new.see(new.pods[uid])
    assert [bool(new.queues.why_not(new.pods[uid])) for uid in "pqr"] == [False, False, True]
    assert new.used("a")[0] == 200


@pytest.mark.parametrize("ends", [False, True], ids=["gone", "marked-first"])
def test_nobody_is_charged_for_a_pod_that_is_gone(*, ends: bool) -> None:
    """kube-scheduler asks for it a moment after the watch told its end: who comes next need not wait for that."""
    stage = Stage({"a": queue(limit=100)}, nodes=(4,))
    stage.submit("p", 100, queue="a")
    assert stage.round() == ["p"]
    stage.lift("p")
    pod = stage.pods["p"]
    if ends:
        leaving = replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z"))
        stage.see(leaving)
        stage.queues.pod_gone("p")
        assert stage.desk.filter(pod, ["n0"], now=stage.now).unresolvable["n0"] == "the pod is being deleted"
        assert stage.used("a")[0] == 0
    stage.gone("p")
    assert not stage.desk.filter(pod, ["n0"], now=stage.now).nodes
    assert stage.used("a")[0] == 0
    stage.submit("late", 100, queue="a")
    assert stage.round(after=1.0) == ["late"]
