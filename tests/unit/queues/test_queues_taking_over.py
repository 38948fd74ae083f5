"""What the next leader makes of pods that the one before has let in: charged where they were let in, or sent back."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import msgspec
import pytest

from aliquot_core.objects import Pod
from aliquot_scheduler.fit.survey import survey
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


OWNER = {"owner": queue(guarantee=100), "lent": queue()}


def _let_in(uid: str, where: str) -> Pod:
    """The leader before has let it in with room there, and it is not bound; empty if it has passed its gate by."""
    pod = Stage(OWNER).submit(uid, 100, queue="owner")
    notes = {NAMES.charged: "owner", NAMES.promised: where} if where else {}
    meta = replace(pod.metadata, annotations=pod.metadata.annotations | notes)
    return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=[]))


def _found(*pods: Pod, nodes: Sequence[int] = (1,)) -> Stage:
    """Another leader finds them, and one that would have the card by borrowing."""
    stage = Stage(OWNER, nodes=nodes)
    stage.submit("borrower", 100, queue="lent", user="other")
    for pod in pods:
        stage.see(pod)
    return stage


def _kept_for(stage: Stage) -> dict[str, str]:
    """Whose room is on which node."""
    return {promise.pod.metadata.uid: promise.node for promise in stage.desk.promises}


def test_who_was_let_in_keeps_its_room_under_another_leader() -> None:
    """Else a borrower would have it at once, and nobody goes for who has lost a turn."""
    old = Stage(OWNER, nodes=(1,))
    old.submit("p", 100, queue="owner")
    assert old.round() == ["p"]
    old.lift("p")
    stage = _found(old.pods["p"])
    assert stage.round() == []
    (notice,) = map(stage.queues.notice, stage.queues.waiting())
    assert "promised to 1 pod that is not bound yet" in notice.message
    assert stage.desk.filter(stage.pods["p"], ["n0"], now=stage.now).nodes == ["n0"]


def test_its_room_is_kept_before_kube_scheduler_is_answered() -> None:
    """It may ask for another that has no gate before anybody was let in."""
    stage = _found(_let_in("early", ""), _let_in("p", "n0 GPU-n0-0"))
    stage.beat()
    assert stage.desk.filter(stage.pods["early"], ["n0"], now=stage.now).nodes == []
    assert _kept_for(stage) == {"p": "n0"}


def test_of_who_keeps_its_room_no_other_node_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 of them all of 1,000 nodes were asked, while kube-scheduler waited for its answers."""
    asked = Mock(wraps=survey)
    monkeypatch.setattr("aliquot_scheduler.fit.surveys.survey", asked)
    stage = _found(*(_let_in(f"p{at}", f"n{at} GPU-n{at}-0") for at in range(3)), nodes=(1,) * 9)
    stage.beat()
    stage.queues.take_over(stage.desk, now=stage.now)
    assert _kept_for(stage) == {"p0": "n0", "p1": "n1", "p2": "n2"}
    assert [call.kwargs["grid"].rows for call in asked.call_args_list] == [1, 1, 1]


def test_who_has_lost_its_place_has_another_but_none_that_others_have_still() -> None:
    """The oldest one's node is gone: it comes after those who are where they were."""
    older, younger = _let_in("a", "n9 GPU-n9-0"), _let_in("b", "n0 GPU-n0-0")
    assert _kept_for_after_a_round(older, younger, nodes=(1,)) == {"b": "n0"}
    assert _kept_for_after_a_round(older, younger, nodes=(1, 1)) == {"a": "n1", "b": "n0"}


def _kept_for_after_a_round(*pods: Pod, nodes: Sequence[int]) -> dict[str, str]:
    stage = _found(*pods, nodes=nodes)
    assert stage.round() == []
    return _kept_for(stage)


def test_room_on_a_node_that_is_silent_is_kept_once_it_is_heard() -> None:
    """Nobody has led for a while, and no agent could say that it lives."""
    stage = _found(_let_in("p", "n0 GPU-n0-0"))
    stage.picture.lease_gone(NAMES.lease("n0"))
    assert list(stage.queues.turns(stage.desk, now=stage.now)) == []
    assert _kept_for(stage) == {}
    assert stage.round(after=1.0) == []
    assert _kept_for(stage) == {"p": "n0"}


def test_who_is_not_asked_for_in_time_has_a_turn_at_once() -> None:
    """It has lost nothing: kube-scheduler is to be woken, which gave up while nobody led."""
    stage = _found(_let_in("p", "n0 GPU-n0-0"))
    assert [stage.round(), stage.round(after=29.0), stage.round(after=1.0)] == [[], [], ["p"]]
    assert stage.queues.register.lost_turns.missed_by("p") == 0


def test_who_was_asked_for_and_is_not_bound_loses_its_turn() -> None:
    """From then on it is as anybody's turn."""
    stage = _found(_let_in("p", "n0 GPU-n0-0"))
    assert stage.round() == []
    assert stage.desk.filter(stage.pods["p"], ["n0"], now=stage.now).nodes == ["n0"]
    assert stage.round(after=30.0) == ["borrower"]
    assert stage.queues.register.lost_turns.missed_by("p") == 1


def test_who_has_no_room_any_more_loses_its_turn() -> None:
    """Somebody else is bound there."""
    stage = Stage(OWNER, nodes=(1,))
    stage.submit("there", 100, queue="lent")
    assert stage.run() == ["there"]
    stage.see(_let_in("p", "n0 GPU-n0-0"))
    assert stage.round(after=1.0) == []
    assert _kept_for(stage) == {}
    assert stage.desk.filter(stage.pods["p"], ["n0"], now=stage.now).nodes == []
    assert stage.queues.register.lost_turns.missed_by("p") == 1
