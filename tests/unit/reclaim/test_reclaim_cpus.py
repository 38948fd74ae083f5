"""CPU and memory of a node are freed, kept and given back with the cards for whom room is made."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_core.objects import Node
from support.centre import gpus, make_node
from support.queue_stage import queue
from support.reclaim_stage import OWNER, ReclaimStage, filled


def test_a_node_that_is_short_of_cpu_is_no_place() -> None:
    """Victims give back theirs; where that is not enough, nobody goes."""
    stage = ReclaimStage(OWNER | {"own": queue(guarantee=100)}, nodes=(3,))
    stage.picture.node_seen(small(make_node("n0", gpus("n0", 3)), cpu="6"))
    stage.submit("own0", 100, queue="own", requests={"cpu": "2"})
    for number in range(2):
        stage.submit(f"blue{number}", 100, queue="blue", requests={"cpu": "2"})
    stage.run()
    stage.submit("large", 100, queue="red", requests={"cpu": "5"})
    assert stage.victims() == []
    stage.submit("red0", 100, queue="red", requests={"cpu": "2"})
    assert stage.reclaimed() == ["blue1"]
    assert stage.run() == ["red0"]


@pytest.mark.parametrize(("asked", "gone"), [("1", ["small"]), ("3", ["large"]), ("4", ["large", "small"])])
def test_for_cpus_alone_those_go_who_hold_them(asked: str, gone: list[str]) -> None:
    """A card is free, and no CPU beside it: what is guaranteed is had all the same, at least harm."""
    stage = ReclaimStage(OWNER, nodes=(3,))
    stage.picture.node_seen(small(make_node("n0", gpus("n0", 3)), cpu="4"))
    stage.submit("large", 60, queue="blue", requests={"cpu": "3"})
    stage.submit("small", 50, queue="blue", requests={"cpu": "1"})
    stage.run()
    stage.submit("red0", 100, queue="red", requests={"cpu": asked})
    assert stage.run() == []
    assert stage.reclaimed() == gone
    assert stage.run() == ["red0"]


def test_what_cpus_cost_is_compared_without_those_who_need_not_go() -> None:
    """The small one is tried first, and is of no use: the other node would cost more than the large one alone."""
    stage = ReclaimStage(OWNER, nodes=(3, 3))
    for node in ("n0", "n1"):
        stage.picture.node_seen(small(make_node(node, gpus(node, 3)), cpu="4"))
    for name, compute, cpus, node in (("large", 60, "3", "n0"), ("small", 50, "1", "n0"), ("mid", 80, "4", "n1")):
        notes = {"gpu-uuid": f"GPU-{node}-*"}
        stage.submit(name, compute, queue="blue", requests={"cpu": cpus}, notes=notes)
    stage.run()
    stage.submit("red0", 100, queue="red", requests={"cpu": "3"})
    assert stage.victims() == ["large"]


def test_whoever_gives_back_cpus_already_is_waited_for() -> None:
    """Nobody goes in addition, and what it gives back is kept: a pod of another with a small slice waits."""
    stage = ReclaimStage(OWNER, nodes=(3,))
    stage.picture.node_seen(small(make_node("n0", gpus("n0", 3)), cpu="4"))
    for number in range(2):
        stage.submit(f"blue{number}", 60, queue="blue", requests={"cpu": "2"})
    stage.run()
    stage.leave("blue0")
    ((_, gpu),) = stage.picture.holdings.of("blue0")
    stage.submit("red0", 100, queue="red", requests={"cpu": "2"}, notes={"gpu-uuid": f"!{gpu}"})
    (clearing,) = stage.decide()
    assert clearing.victims == ()
    stage.submit("other", 10, queue="blue", user="other", requests={"cpu": "2"})
    stage.gone("blue0")
    assert stage.run(after=1.0) == ["red0"]


def test_one_that_asks_too_much_keeps_nothing_from_those_behind_it() -> None:
    """A group that no rights make room for, and single pods of the same shape."""
    stage = ReclaimStage({"red": queue(guarantee=300), "blue": queue(guarantee=200)})
    filled(stage, "blue", 4)
    for number in range(3):
        stage.submit(f"g{number}", 100, queue="red", group="gang", notes={"group-size": "3"})
    stage.submit("red0", 100, queue="red")
    assert stage.victims() == ["blue3"]


def small(node: Node, *, cpu: str) -> Node:
    """The same node, with so few CPUs."""
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable={"cpu": cpu}))


# --- what nodes have beside cards ------------------------------------------------------------------------------------


def _with_cpus(stage: ReclaimStage, cpus: int, *, cards: int = 4) -> None:
    """The node says what it has."""
    node = make_node("n0", gpus("n0", cards))
    said = msgspec.structs.replace(node.status, allocatable={"cpu": str(cpus), "memory": "64Gi", "pods": "20"})
    stage.picture.node_seen(msgspec.structs.replace(node, status=said))


def test_cpus_are_kept_with_the_cards_for_whom_room_is_made() -> None:
    """A small pod that a card has room for waits: it would take the CPU that victims give back one by one."""
    stage = ReclaimStage(OWNER | {"green": queue(guarantee=60)}, nodes=(5,))
    _with_cpus(stage, 16, cards=5)
    filled(stage, "green", 1, 50)
    filled(stage, "blue", 4, requests={"cpu": "4"})
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red", requests={"cpu": "4"}, group="pair", notes={"group-size": "2"})
    stage.decide()
    first, second = stage.evict()
    stage.gone(first)
    stage.submit("green9", 10, queue="green", requests={"cpu": "1"})
    assert stage.run(after=1.0) == []
    stage.gone(second)
    assert sorted(stage.run(after=1.0)) == ["red0", "red1"]
    # What was kept is held now, and nothing of it twice.
    assert stage.picture.hosts.free[0].tolist()[0] == 0
    stage.end("red0")
    assert stage.run(after=1.0) == ["green9"]


def test_what_is_kept_of_cpus_is_counted_once_in_the_same_look() -> None:
    """Two owners one after the other take one victim's CPUs each."""
    stage = ReclaimStage(OWNER)
    _with_cpus(stage, 16)
    filled(stage, "blue", 4, requests={"cpu": "4"})
    for number in range(2):
        stage.submit(f"red{number}", 100, queue="red", requests={"cpu": "4"})
    assert len(stage.victims()) == 2
    for uid in stage.evict():
        stage.gone(uid)
    assert sorted(stage.run(after=1.0)) == ["red0", "red1"]


def test_cpus_that_were_kept_are_free_again_when_it_is_called_off() -> None:
    """Whoever it was made for is gone."""
    stage = ReclaimStage(OWNER | {"green": queue()})
    _with_cpus(stage, 16)
    filled(stage, "blue", 4, requests={"cpu": "4"})
    stage.submit("red0", 100, queue="red", requests={"cpu": "4"})
    stage.decide()
    (victim,) = stage.evict()
    assert stage.picture.hosts.free[0].tolist()[0] == -4_000
    stage.gone("red0")
    stage.run(after=1.0)
    assert stage.picture.hosts.free[0].tolist()[0] == 0
    stage.gone(victim)
    assert stage.picture.hosts.free[0].tolist()[0] == 4_000
