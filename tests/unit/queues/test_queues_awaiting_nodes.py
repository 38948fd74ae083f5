"""Guarantees of queues with `autoscale` whose pods no node that is there could take: they keep nothing from others."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from aliquot_scheduler.queues.said.tree import COMPUTE
from support.centre import gpus, make_node
from support.growing import go, shown
from support.queue_stage import A100, H100, Stage, queue
from support.waiting_oracle import Emptied

GROWS = queue(guarantee=300, autoscale=True)
OF_H100 = {"gpu-model": "*H100*"}


def held(stage: Stage) -> int:
    """How much compute is held back for the queue that grows."""
    return stage.queues.books.ledger.accounts["c"].held[COMPUTE]


def awaiting(*, compute: int = 300, notes: Mapping[str, str] | None = None) -> Stage:
    """A pod of a queue that grows, and after it pods of another one, more of them than there is room for."""
    stage = Stage({"c": GROWS, "b": queue()}, nodes=(2,))
    stage.submit("c0", compute, queue="c", notes=notes)
    for number in range(1, 10):
        stage.submit(f"b{number}", queue="b")
    return stage


@pytest.mark.parametrize(
    ("compute", "notes"),
    [(300, {}), (100, OF_H100), (300, {"gpus": "3"})],
    ids=["more GPUs than a node has", "a model that is not there", "spread over more GPUs"],
)
def test_for_whom_no_node_would_do_nothing_is_held_back(compute: int, notes: Mapping[str, str]) -> None:
    """All GPUs are for others meanwhile, and its own gate is lifted, so that an autoscaler sees it."""
    stage = awaiting(compute=compute, notes=notes)
    assert go(stage) == ["b1", "b2", "c0"]
    assert shown(stage) == ["c0"]
    assert held(stage) == 0


def test_a_guarantee_counts_at_once_when_the_node_comes() -> None:
    """Others wait for that node as well, and come before by age; the pod of the guarantee has it."""
    stage = awaiting()
    assert go(stage) == ["b1", "b2", "c0"]
    stage.picture.node_seen(make_node("n1", gpus("n1", 4)))
    stage.queues.register.tell_time(stage.now)
    assert held(stage) == 300
    assert go(stage) == ["c0", "b3"]


def test_a_guarantee_counts_no_more_when_the_last_node_goes_that_would_do() -> None:
    """What is free elsewhere was held back for it, as ever while some node could take it once that is empty."""
    stage = Stage({"c": GROWS, "b": queue()}, nodes=(2, 4))
    stage.submit("x", 400, queue="b")
    assert go(stage) == ["x"]
    stage.submit("c0", 300, queue="c")
    stage.submit("b1", queue="b")
    assert go(stage) == ["c0"]
    assert held(stage) == 300
    stage.picture.node_gone("n1")
    assert go(stage) == ["b1"]
    assert held(stage) == 0


def test_who_could_not_come_in_beside_what_others_keep_holds_nothing_back() -> None:
    """Of four GPUs two are kept idle; the other two are for anybody, until there are as many as it needs."""
    specs = {"c": GROWS, "k": queue(guarantee=200, lend=0), "b": queue()}
    stage = Stage(specs, nodes=(4,))
    stage.submit("c0", 300, queue="c")
    for number in range(1, 6):
        stage.submit(f"b{number}", queue="b")
    assert go(stage) == ["b1", "b2", "c0"]
    assert held(stage) == 0
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    stage.queues.register.tell_time(stage.now)
    assert held(stage) == 300


def test_a_queue_that_begins_to_grow_or_ends_it_holds_nothing_back_either_way() -> None:
    """Where it does not grow its pod is told that it can't be let in; where it does the pod waits in its line."""
    stage = awaiting()
    for grows in (True, False, True):
        stage.queues.queues_seen({"c": queue(guarantee=300, autoscale=grows), "b": queue()})
        stage.round()
        assert held(stage) == 0
        (word,) = (stage.queues.word(one) for one in stage.queues.waiting() if one.uid == "c0")
        assert (word == "NeverFits") is not grows


@pytest.mark.parametrize(
    ("compute", "notes"),
    [(100, {"group-topology": "node"}), (30, {"group-topology": "spread"}), (100, OF_H100)],
    ids=["more GPUs than a node has", "more nodes than there are", "a model that is not there"],
)
def test_so_it_is_with_a_group_until_its_node_comes(compute: int, notes: Mapping[str, str]) -> None:
    """Nothing is held back for it, and all of it is shown; from then on its guarantee counts."""
    stage = Stage({"c": GROWS, "b": queue()}, nodes=(2, 2))
    for number in range(3):
        stage.submit(f"c{number}", compute, queue="c", group="g", notes={"group-size": "3", **notes})
    for number in range(1, 9):
        stage.submit(f"b{number}", queue="b")
    assert go(stage) == ["b1", "b2", "b3", "b4", "c0", "c1", "c2"]
    assert (shown(stage), held(stage)) == (["c0", "c1", "c2"], 0)
    stage.picture.node_seen(make_node("n2", gpus("n2", 4, model=H100)))
    stage.queues.register.tell_time(stage.now)
    assert held(stage) == 3 * compute


def test_of_a_group_who_awaits_a_node_holds_nothing_back_and_the_others_do() -> None:
    """One of an elastic group starts it; of the others one asks for a model that is not there."""
    stage = Stage({"c": GROWS, "b": queue()}, nodes=(1,))
    stage.submit("x", queue="b")
    assert go(stage) == ["x"]
    for number, model in enumerate(("*A100*", "*A100*", "*H100*")):
        notes = {"group-size": "3", "group-min": "1", "gpu-model": model}
        stage.submit(f"c{number}", queue="c", group="g", notes=notes)
    stage.round()
    assert held(stage) == 200
    stage.picture.node_seen(make_node("n1", gpus("n1", 1, model=H100)))
    stage.queues.register.tell_time(stage.now)
    assert held(stage) == 300


def test_of_a_group_who_has_its_node_since_counts_with_the_others() -> None:
    """Its shape comes to the same by that node: others keep too much of all there was, and not of what there is."""
    stage = Stage({"c": GROWS, "k": queue(guarantee=200, lend=0), "b": queue()}, nodes=(4,))
    stage.submit("x", 200, queue="b")
    assert go(stage) == ["x"]
    for number, compute in enumerate((100, 300)):
        stage.submit(f"c{number}", compute, queue="c", group="g", notes={"group-size": "2", "group-min": "1"})
    stage.round()
    assert held(stage) == 100
    stage.picture.node_seen(make_node("n1", gpus("n1", 1)))
    stage.queues.register.tell_time(stage.now)
    assert held(stage) == 300


@pytest.mark.parametrize("seed", range(30))
def test_who_demands_its_guarantee_could_come_in_if_nobody_else_were_there(seed: int) -> None:
    """Nodes come and go beside queues that keep GPUs idle; found anew each time by trying where each could lie."""
    chance = random.Random(seed)
    kept = chance.choice((0, 100, 300))
    stage = Stage({"c": GROWS, "k": queue(guarantee=kept, lend=0), "b": queue()}, nodes=())
    for number in range(6):
        notes = chance.choice(({}, {}, OF_H100, {"gpu-model": "*A100*"}, {"gpus": "2"}))
        stage.submit(f"c{number}", chance.choice((30, 100, 200, 300)), queue="c", notes=notes)
    for _ in range(8):
        name = chance.choice(("n0", "n1", "n2"))
        if name in stage.picture.nodes and chance.random() < 0.5:
            stage.picture.node_gone(name)
        else:
            cards = gpus(name, chance.choice((1, 2, 4)), memory=80_000, model=chance.choice((A100, H100)))
            stage.picture.node_seen(make_node(name, cards))
        stage.queues.register.tell_time(stage.now)
        nobody = Emptied(
            tree=stage.queues.books.ledger.tree,
            capacity=stage.queues.stock().capacity,
            nodes=[known.inventory.gpus for known in stage.picture.nodes.values()],
        )
        for waiter in stage.queues.waiting():
            (ask,) = stage.queues.register.hall.asked.by(waiter.uid)
            assert ask.quiet is not nobody.has_room([waiter]), (waiter.uid, waiter.demand.request, name)
