"""Quotas for GPUs of one model: who is held to them, and who goes elsewhere instead."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from support.centre import gpus, make_node
from support.queue_stage import Stage, queue

H100, A100 = "*H100*", "*A100*"


def of_model(name: str, parent: str = "", **compute: Any) -> QueueSpec:
    """A queue with a quota of the compute of one model."""
    return QueueSpec(parent=parent, namespaces=("*",), models={name: ModelQuota(compute=Quota(**compute))})


def mixed(specs: dict[str, QueueSpec], *, a100: int = 2, h100: int = 2, settings: QueueSettings | None = None) -> Stage:
    """A node of each model; the H100 come first by name, and have no more memory."""
    stage = Stage(specs, nodes=(), settings=settings)
    stage.picture.node_seen(make_node("g-h100", gpus("g-h100", h100, model="NVIDIA H100 80GB HBM3")))
    if a100:
        stage.picture.node_seen(make_node("k-a100", gpus("k-a100", a100)))
    return stage


def submitted(stage: Stage, name: str, count: int, compute: int = 100, **more: Any) -> list[str]:
    """So many pods of a queue."""
    uids = [f"{name}{number}" for number in range(count)]
    for uid in uids:
        stage.submit(uid, compute, queue=name, **more)
    return uids


def nodes_of(stage: Stage, uids: list[str]) -> list[str]:
    """Where each of them lies."""
    return sorted(node for uid in uids for node, _ in stage.picture.holdings.of(uid))


@pytest.mark.parametrize(("limit", "on_h100"), [(0, 0), (100, 1), (200, 2)])
def test_a_limit_for_a_model_sends_who_names_none_elsewhere(limit: int, on_h100: int) -> None:
    """Of four pods as many lie on H100 as the limit allows, and all others that have a card on A100."""
    stage = mixed({"a": of_model(H100, limit=limit)})
    uids = submitted(stage, "a", 4)
    for _ in range(4):
        stage.run(after=1.0)
    assert nodes_of(stage, uids) == ["g-h100"] * on_h100 + ["k-a100"] * 2


def test_kube_scheduler_is_offered_no_node_of_a_model_that_the_queue_may_not_have() -> None:
    """What the gate was lifted for holds when it asks which nodes would do, and for the leader that comes next."""
    stage = mixed({"a": of_model(H100, limit=0)})
    stage.submit("p", 50, queue="a")
    stage.round()
    names = sorted(stage.picture.nodes)
    assert stage.desk.filter(stage.pods["p"], names, now=stage.now).nodes == ["k-a100"]
    stage.lift("p")
    after = mixed({"a": of_model(H100, limit=0)})
    after.see(stage.pods["p"])
    after.beat()
    after.queues.register.tell_time(0.0)
    assert after.desk.filter(after.pods["p"], names, now=0.0).nodes == ["k-a100"]


def test_who_names_a_model_is_held_to_its_limit() -> None:
    """Other cards idle, and it asked for none of those; one that may have none at all is told so."""
    stage = mixed({"a": of_model(H100, limit=100), "z": of_model(H100, limit=0)})
    uids = submitted(stage, "a", 2, notes={"gpu-model": H100})
    submitted(stage, "z", 1, notes={"gpu-model": H100})
    assert stage.run() == uids[:1]
    notices = {one.uid: stage.queues.notice(one) for one in stage.queues.waiting()}
    assert (notices["a1"].reason, notices["z0"].reason) == ("OverLimit", "NeverFits")
    assert f"{H100}, more than the 0 % that queue z may have" in notices["z0"].message


def test_where_there_is_no_other_model_a_limit_of_nothing_is_never_fits_until_one_comes() -> None:
    """Who names no model then has a card of the new one."""
    stage = mixed({"a": of_model(H100, limit=0)}, a100=0)
    stage.submit("p", 100, queue="a")
    assert stage.run() == []
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).reason == "NeverFits"
    stage.picture.node_seen(make_node("k-a100", gpus("k-a100", 2)))
    assert stage.run(after=1.0) == ["p"]
    assert nodes_of(stage, ["p"]) == ["k-a100"]


def test_a_limit_of_a_model_holds_at_every_queue_above() -> None:
    """Brothers share it, and go elsewhere alike."""
    specs = {"o": of_model(H100, limit=100), "a": queue("o"), "b": queue("o")}
    stage = mixed(specs)
    uids = [*submitted(stage, "a", 2), *submitted(stage, "b", 2)]
    for _ in range(3):
        stage.run(after=1.0)
    assert nodes_of(stage, uids) == ["g-h100", "k-a100", "k-a100"]


def test_what_is_guaranteed_of_a_model_is_kept_for_who_asks_for_it() -> None:
    """A guarantee of two H100 that is waited for keeps others off them, and nobody off an A100."""
    stage = mixed({"a": of_model(H100, guarantee=200), "b": queue()}, h100=2, a100=2)
    stage.submit("small", 10, queue="b", notes={"gpu-model": H100})
    assert stage.run() == ["small"]
    stage.submit("pair", 200, queue="a", notes={"gpu-model": H100})
    uids = submitted(stage, "b", 3)
    for _ in range(3):
        stage.run(after=1.0)
    assert nodes_of(stage, uids) == ["k-a100", "k-a100"]
    stage.end("small")
    assert stage.run(after=1.0) == ["pair"]


def test_who_may_not_be_evicted_goes_where_its_queue_is_guaranteed_something() -> None:
    """Only A100 are guaranteed to it, so nothing of it lies on an H100 for good."""
    stage = mixed({"a": of_model(A100, guarantee=200), "b": of_model(H100, weight=1)})
    uids = submitted(stage, "a", 3, notes={"preemptible": "false"})
    for _ in range(3):
        stage.run(after=1.0)
    assert nodes_of(stage, uids) == ["k-a100", "k-a100"]


def test_of_a_group_as_few_go_elsewhere_as_it_takes() -> None:
    """Three start together: one on the H100 that the limit allows, and two on A100."""
    stage = mixed({"a": of_model(H100, limit=100)})
    for number in range(3):
        stage.submit(f"g{number}", 100, queue="a", notes={"group-size": "3"}, group="g")
    assert stage.run() == ["g0", "g1", "g2"]
    assert nodes_of(stage, ["g0", "g1", "g2"]) == ["g-h100", "k-a100", "k-a100"]


def test_what_it_was_kept_off_stays_so_when_other_queues_are_made() -> None:
    """Between its turn and its binding it counts for no model that it can't lie on, whatever is planted anew."""
    specs = {"a": of_model(H100, limit=100)}
    stage = mixed(specs)
    uids = submitted(stage, "a", 2)
    assert stage.round() == uids
    dimension = 2
    assert stage.queues.books.ledger.accounts["a"].used[dimension] == 100
    stage.queues.queues_seen({**specs, "b": queue()})
    assert stage.queues.books.ledger.accounts["a"].used[dimension] == 100
    assert stage.desk.filter(stage.pods["a1"], sorted(stage.picture.nodes), now=stage.now).nodes == ["k-a100"]


def test_a_limit_that_comes_too_late_changes_nothing_for_who_is_on_the_way() -> None:
    """It may be bound to the H100 that it was promised, so it goes on to count for that."""
    stage = mixed({"a": queue(), "b": of_model(H100, weight=1)})
    stage.submit("p", 200, queue="a")
    assert stage.round() == ["p"]
    assert nodes_of(stage, ["p"]) == ["g-h100", "g-h100"]
    stage.queues.queues_seen({"a": of_model(H100, limit=100)})
    before = list(stage.queues.books.ledger.accounts["a"].used)
    stage.bind("p")
    assert stage.queues.books.ledger.accounts["a"].used == before


def test_who_waits_long_for_a_model_stops_nobody_on_other_cards() -> None:
    """A head that has lost patience for the limit of H100 is passed by those who take none of it."""
    settings = QueueSettings(patience=10.0, hold=1_000.0)
    stage = mixed({"a": of_model(H100, limit=100)}, a100=3, settings=settings)
    stage.submit("first", 100, queue="a", notes={"gpu-model": H100})
    assert stage.run() == ["first"]
    stage.submit("head", 100, queue="a", notes={"gpu-model": H100})
    assert stage.run(after=1.0) == []
    assert stage.run(after=20.0) == []
    submitted(stage, "a", 2)
    assert stage.run(after=1.0) == ["a0", "a1"]
    assert nodes_of(stage, ["a0", "a1"]) == ["k-a100", "k-a100"]
