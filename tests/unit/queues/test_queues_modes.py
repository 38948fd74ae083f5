"""GPUs of one node that offer different isolation modes: who needs several of one mode is let in where they are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_core.inventory import Gpu
from support.centre import gpus, make_node
from support.queue_stage import Stage, queue
from support.reclaim_stage import ReclaimStage

INTERPOSER, MPS = ["observe", "interposer"], ["mps"]


def apart(name: str, *modes: Sequence[str]) -> list[Gpu]:
    """A node's GPUs, each with its modes."""
    return [
        msgspec.structs.replace(gpu, isolation=list(own))
        for gpu, own in zip(gpus(name, len(modes)), modes, strict=True)
    ]


def cards(stage: Stage, uid: str) -> set[int]:
    """On which GPUs of its node a pod lies."""
    return {int(gpu[-1]) for _, gpu in stage.picture.holdings.of(uid)}


def test_who_finds_no_two_of_one_mode_keeps_nobody_out() -> None:
    """It stands in no line, whatever guarantee it has and however long it waits: it would be its head for ever."""
    stage = Stage({"a": queue(guarantee=200), "b": queue()}, nodes=())
    stage.picture.node_seen(make_node("n0", apart("n0", INTERPOSER, MPS)))
    stage.submit("stuck", 200, None, queue="a")
    assert stage.round(after=3_600.0) == []
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).reason == "NeverFits"
    others = [f"o{number}" for number in range(4)]
    for other in others:
        stage.submit(other, 50, 1_000, queue="b")
    assert stage.run() == others


def test_it_waits_for_two_of_one_mode_and_takes_those() -> None:
    """Two GPUs with room of different modes are no room; the next two that are free are."""
    stage = Stage({"a": queue()}, nodes=())
    stage.picture.node_seen(make_node("n0", apart("n0", INTERPOSER, MPS, INTERPOSER, MPS)))
    for at in (0, 1):
        stage.submit(f"on{at}", 100, None, queue="a", notes={"gpu-uuid": f"GPU-n0-{at}"})
    assert len(stage.run()) == 2
    stage.submit("p", 200, None, queue="a")
    assert stage.run() == []
    (waiter,) = stage.queues.waiting()
    assert stage.queues.notice(waiter).reason != "NeverFits"
    stage.end("on1")
    assert stage.run() == ["p"]
    assert cards(stage, "p") == {1, 3}


def test_two_of_a_group_lie_in_a_mode_each() -> None:
    """Each over two GPUs, whichever cards are the fullest."""
    stage = Stage({"a": queue()}, nodes=())
    stage.picture.node_seen(make_node("n0", apart("n0", INTERPOSER, MPS, MPS, INTERPOSER)))
    for uid in ("g0", "g1"):
        stage.submit(uid, 200, None, queue="a", group="g", notes={"group-size": "2"})
    assert sorted(stage.run()) == ["g0", "g1"]
    assert sorted(map(sorted, (cards(stage, "g0"), cards(stage, "g1")))) == [[0, 3], [1, 2]]


def test_who_goes_for_two_gpus_lies_on_two_of_one_mode() -> None:
    """The two of all where least would be lost share none."""
    stage = ReclaimStage({"a": queue(guarantee=200), "b": queue()}, nodes=())
    stage.picture.node_seen(make_node("n0", apart("n0", INTERPOSER, MPS, INTERPOSER, MPS)))
    for at in range(4):
        stage.submit(f"b{at}", (10, 10, 100, 100)[at], 1_000, queue="b", notes={"gpu-uuid": f"GPU-n0-{at}"})
    assert len(stage.run()) == 4
    stage.submit("a0", 200, None, queue="a")
    assert stage.run() == []
    stage.decide(after=60.0)
    gone = set(stage.evict())
    assert gone in ({"b0", "b2"}, {"b1", "b3"})
    stage.end(*gone)
    assert stage.run() == ["a0"]
    assert len({at % 2 for at in cards(stage, "a0")}) == 1
