"""What is kept for a head that lost patience, where others of its user that ask the same come in before it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from aliquot_core.objects import PodCondition
from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.waiting.waiter import Candidate
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace

SETTINGS = QueueSettings(patience=10.0, hold=1_000.0)
NODE = {"gpus": "4"}
TWO_OF_TWO = {"gpus": "2", "group-size": "2"}
TWO_OF_THREE = {"gpus": "2", "group-size": "3", "group-min": "2"}
ONE_OF_TWO = NODE | {"group-size": "2", "group-min": "1"}


def full_stage(*, nodes: int = 2, settings: QueueSettings = SETTINGS, autoscale: bool = False) -> Stage:
    """All cards of the first two nodes are in use by `b`, a pod on each, named for its node and card."""
    growing = queue(limit=400, autoscale=True, autoscale_minutes=1.0)
    specs = {"a": growing if autoscale else queue(), "b": queue(), "c": queue(priority=1)}
    stage = Stage(specs, nodes=(4,) * nodes, settings=settings)
    for node in ("n0", "n1"):
        for card in range(4):
            stage.submit(f"{node}-{card}", 100, queue="b", notes={"gpu-uuid": f"GPU-{node}-{card}"})
    assert len(stage.run()) == 8
    return stage


def empty(stage: Stage, node: str) -> None:
    """Whoever was there at the beginning has ended."""
    stage.end(*[f"{node}-{card}" for card in range(4)])


def kept(stage: Stage) -> dict[str, tuple[str, ...]]:
    """Which nodes are kept for whom."""
    return {uid: nodes for uid, nodes in stage.queues.register.memory.kept(now=stage.now).items() if nodes}


def lose_patience(stage: Stage) -> tuple[str, str]:
    """The head does; which node is kept for it, and the other one."""
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    ((node,),) = kept(stage).values()
    return node, "n1" if node == "n0" else "n0"


def wait_for_a_node(stage: Stage) -> tuple[str, str]:
    """One pod loses patience."""
    stage.submit("head", 400, queue="a", notes=NODE)
    return lose_patience(stage)


# --- who may come in before a head and asks the same -----------------------------------------------------------------
def urgent(stage: Stage) -> tuple[str, str]:
    """One of a higher PriorityClass comes later."""
    nodes = wait_for_a_node(stage)
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    return nodes


def last_of_a_group(stage: Stage) -> tuple[str, str]:
    """One that is enough of its group by itself: it asks what a pod does that is in none."""
    nodes = wait_for_a_node(stage)
    stage.submit("first", 400, queue="a", notes=ONE_OF_TWO, group="g", priority=5)
    return nodes


def back_from_its_turn(stage: Stage) -> tuple[str, str]:
    """An older one, whose turn led to nothing while all schedulers were away; then others had its node."""
    first = stage.submit("first", 400, queue="a", notes=NODE)
    gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
    stage.see(replace(first, status=replace(first.status, conditions=[gated])))
    assert stage.round() == ["first"]
    nodes = wait_for_a_node(stage)
    stage.submit("c0", 400, queue="c", notes=NODE)
    assert stage.run(after=PROMISE) == ["c0"]
    assert stage.run(after=PROMISE) == []
    assert stage.queues.is_in_line("first")
    return nodes


def another_group(stage: Stage) -> tuple[str, str]:
    """A whole group whose pods ask what those of the head's do."""
    for uid in ("head", "mate"):
        stage.submit(uid, 200, queue="a", group="g", notes=TWO_OF_TWO)
    nodes = lose_patience(stage)
    for uid in ("first", "second"):
        stage.submit(uid, 200, queue="a", group="h", notes=TWO_OF_TWO, priority=5)
    return nodes


def its_own_group(stage: Stage) -> tuple[str, str]:
    """Another pod of the head's own group, so that the head's second one is not needed any more."""
    for uid in ("head", "mate"):
        stage.submit(uid, 200, queue="a", group="g", notes=TWO_OF_THREE)
    nodes = lose_patience(stage)
    stage.submit("first", 200, queue="a", group="g", notes=TWO_OF_THREE, priority=5)
    return nodes


BEFORE: dict[str, tuple[Callable[[Stage], tuple[str, str]], list[str], int]] = {
    "of higher priority": (urgent, ["first"], 2),
    "back from its turn": (back_from_its_turn, ["first"], 3),
    "the last of a group": (last_of_a_group, ["first"], 2),
    "another group": (another_group, ["first", "second"], 2),
    "of its own group": (its_own_group, ["first", "head"], 2),
}


@pytest.mark.parametrize(("before", "let_in", "nodes"), BEFORE.values(), ids=BEFORE)
def test_who_comes_in_before_a_head_comes_to_its_node(
    before: Callable[[Stage], tuple[str, str]], let_in: list[str], nodes: int
) -> None:
    """The head is not asked before it, so the node would idle for both."""
    stage = full_stage(nodes=nodes)
    node, _ = before(stage)
    assert stage.run(after=1.0) == []
    assert list(kept(stage)) == ["first"]
    empty(stage, node)
    assert stage.run(after=1.0) == let_in


def test_a_head_goes_on_from_where_it_was_once_the_other_is_in() -> None:
    """It has another node kept for it in the same round, the one that is the emptiest by then."""
    stage = full_stage()
    node, other = wait_for_a_node(stage)
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    assert stage.run(after=1.0) == []
    empty(stage, node)
    stage.end(f"{other}-0")
    assert stage.run(after=1.0) == ["first"]
    assert kept(stage) == {"head": (other,)}
    stage.end(*[f"{other}-{card}" for card in range(1, 4)])
    assert stage.run(after=1.0) == ["head"]


def test_what_was_kept_is_the_heads_again_where_the_other_found_room_elsewhere() -> None:
    """Nobody who is asked before the head in that round comes to its node, which has run half empty."""
    stage = full_stage()
    node, other = wait_for_a_node(stage)
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    assert stage.run(after=1.0) == []
    stage.end(f"{node}-0", f"{node}-1")
    empty(stage, other)
    stage.submit("small", 100, queue="b")
    assert stage.run(after=1.0) == ["first"]
    assert kept(stage) == {"head": (node,)}
    stage.end(f"{node}-2", f"{node}-3")
    assert stage.run(after=1.0) == ["head"]


def test_who_is_gone_gives_back_what_it_took_over() -> None:
    """The head has its node as before, from the moment on that the other one is deleted."""
    stage = full_stage()
    node, _ = wait_for_a_node(stage)
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    assert stage.run(after=1.0) == []
    stage.gone("first")
    assert kept(stage) == {"head": (node,)}
    empty(stage, node)
    assert stage.run(after=1.0) == ["head"]


def test_what_is_handed_over_is_kept_from_the_same_as_before() -> None:
    """Not from a queue of higher priority, when it is handed over or given back."""
    stage = full_stage()
    node, _ = wait_for_a_node(stage)
    stage.end(f"{node}-0")
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    stage.submit("c0", 50, queue="c")
    assert stage.run(after=1.0) == ["c0"]
    assert kept(stage) == {"first": (node,)}
    stage.gone("first")
    stage.submit("c1", 50, queue="c")
    assert stage.run(after=1.0) == ["c1"]
    assert kept(stage) == {"head": (node,)}


def come_in_before_the_head(stage: Stage) -> str:
    """One that asks the same does, so that `a` has all that it is due; where the head waits, a card is free."""
    node, other = wait_for_a_node(stage)
    # `b` asks for no less than it is due.
    stage.submit("b1", 400, queue="b", notes=NODE)
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    assert stage.run(after=1.0) == []
    empty(stage, node)
    stage.end(f"{other}-0")
    assert stage.run(after=1.0) == ["first"]
    assert kept(stage) == {"head": (other,)}
    return other


def test_a_share_that_was_used_by_who_came_in_before_keeps_nothing_from_others() -> None:
    """Else who has such pods made without end would have all there is, by one old pod of a low PriorityClass."""
    stage = full_stage()
    come_in_before_the_head(stage)
    stage.submit("b0", 50, queue="b")
    assert stage.run(after=1.0) == ["b0"]


def test_so_it_is_of_who_comes_before_the_head_next() -> None:
    """The next one that asks the same takes over what is the head's by then: a node kept from its own user alone."""
    stage = full_stage()
    other = come_in_before_the_head(stage)
    stage.submit("next", 400, queue="a", notes=NODE, priority=5)
    stage.submit("b0", 50, queue="b")
    assert stage.run(after=1.0) == ["b0"]
    assert kept(stage) == {"next": (other,)}


def test_a_share_reaches_as_far_as_before_where_nobody_came_in_by_it() -> None:
    """Whoever took the node over is gone: what has begun goes on."""
    stage = full_stage()
    memory = stage.queues.register.memory
    wait_for_a_node(stage)
    began = memory.keeping("head")
    assert began is not None
    sides = set(began[1])
    assert "a" in sides
    for goes in ("first", "next"):
        stage.submit(goes, 400, queue="a", notes=NODE, priority=5)
        assert stage.run(after=1.0) == []
        stage.gone(goes)
        assert (again := memory.keeping("head")) is not None
        assert again[1] == sides


def test_a_share_is_used_up_as_well_where_the_one_that_handed_on_comes_in_first() -> None:
    """Room may have been made for it elsewhere: who took its node over has begun nothing of its own."""
    stage = full_stage()
    memory, firsts, _ = two_heads_behind(stage)
    memory.stand_behind({"head": firsts["head"]})
    assert (taken := memory.keeping("first")) is not None
    assert "a" in taken[1]
    memory.let_in("head")
    assert (left := memory.keeping("first")) is not None
    assert not left[1]


def two_heads_behind(stage: Stage) -> tuple[SweepMemory, dict[str, Candidate | None], tuple[str, str]]:
    """One has waited longer than the head; a first that asks the same comes in before both. Their two nodes."""
    node, other = wait_for_a_node(stage)
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    register = stage.queues.register
    first = register.hall.lines["a"].heads("team", runs=register.books.runs)[0]
    register.memory.head_refused("zzz", now=-5.0)
    register.memory.keep("zzz", (other,))
    return register.memory, {"head": first, "zzz": first}, (node, other)


def test_of_several_heads_the_one_that_has_waited_longest_hands_its_nodes_over() -> None:
    """Where somebody came to them others are chosen; and who stands behind has none, and is not looked at."""
    stage = full_stage()
    memory, firsts, (_, other) = two_heads_behind(stage)
    memory.taken({other}, by="b0")
    memory.stand_behind(firsts)
    assert kept(stage) == {"first": (other,)}
    assert memory.choose_anew("first")
    assert memory.to_look_at(now=stage.now) == {"first"}
    memory.keep("first", ())
    memory.stand_behind(firsts)
    assert kept(stage) == {}


def test_who_has_a_node_already_takes_over_none() -> None:
    """It keeps its own, and the others none: from this moment on, since it has waited as long as they have."""
    stage = full_stage()
    memory, firsts, (node, _) = two_heads_behind(stage)
    memory.head_refused("first", now=stage.now)
    memory.keep("first", (node,))
    assert "first" not in kept(stage)
    memory.stand_behind(firsts)
    assert kept(stage) == {"first": (node,)}
    assert memory.patience.since["first"] == -5.0
    memory.stand_behind({"head": firsts["head"]})
    assert memory.patience.since["first"] == -5.0


def test_who_has_waited_as_long_without_a_node_keeps_its_own_from_then_on() -> None:
    """Though nothing is handed over to it."""
    stage = full_stage()
    memory, firsts, (node, other) = two_heads_behind(stage)
    memory.keep_nothing("head")
    memory.head_refused("first", now=stage.now)
    memory.keep("first", (node,))
    assert "first" not in kept(stage)
    memory.stand_behind({"head": firsts["head"]})
    assert kept(stage) == {"first": (node,), "zzz": (other,)}


def test_who_is_in_by_then_gets_nothing_back() -> None:
    """Room may have been made for the head meanwhile."""
    stage = full_stage()
    memory, firsts, _ = two_heads_behind(stage)
    memory.stand_behind({"head": firsts["head"]})
    for uid in ("head", "first"):
        memory.forget(uid)
    assert memory.keeping("head") is None


def test_nothing_comes_back_as_of_other_queues() -> None:
    """What a head was by them is not known any more."""
    stage = full_stage()
    memory, firsts, (node, _) = two_heads_behind(stage)
    first = firsts["head"]
    assert first is not None
    memory.stand_behind({"head": first})
    memory.everything_changed(now=stage.now)
    memory.keep_for(first, (node,))
    memory.forget("first")
    assert memory.keeping("head") is None


@pytest.mark.parametrize("how", ["its queue is gone", "its namespace moves"])
def test_who_waits_elsewhere_by_now_gets_its_node_back_there(how: str) -> None:
    """What was handed over as of another queue is no reason to fall over."""
    specs = {"a": queue(), "b": queue(), "c": queue()}
    stage = Stage(specs, nodes=(4,), settings=SETTINGS)
    stage.queues.namespace_seen("team", queue="a")
    for card in range(4):
        stage.submit(f"c{card}", 100, queue="c")
    assert len(stage.run()) == 4
    stage.submit("head", 400, notes=NODE)
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    stage.submit("first", 400, notes=NODE, priority=5)
    assert stage.run(after=1.0) == []
    if how == "its queue is gone":
        stage.queues.queues_seen({name: spec for name, spec in specs.items() if name != "a"})
    stage.queues.namespace_seen("team", queue="b")
    assert stage.run(after=1.0) == []
    stage.gone("first")
    stage.end("c0", "c1", "c2", "c3")
    # It may take a round until its share is looked at anew.
    assert stage.run(after=1.0) + stage.run(after=1.0) == ["head"]


def test_a_node_of_two_who_stand_behind_goes_from_one_to_the_other() -> None:
    """Whoever comes first has it, each time; and each of them gets its own in the order of their line."""
    stage = full_stage()
    node, other = wait_for_a_node(stage)
    for number in (1, 2):
        stage.submit(f"first{number}", 400, queue="a", notes=NODE, priority=number)
        assert stage.run(after=1.0) == []
        assert kept(stage) == {f"first{number}": (node,)}
    empty(stage, node)
    assert stage.run(after=1.0) == ["first2"]
    assert list(kept(stage)) == ["first1"]
    empty(stage, other)
    assert stage.run(after=1.0) == ["first1"]
    assert list(kept(stage)) == ["head"]


def test_other_users_pods_and_smaller_ones_come_to_no_kept_node() -> None:
    """They do not keep the head from being asked: what is kept for it is kept from them, whatever their priority."""
    stage = full_stage()
    node, _ = wait_for_a_node(stage)
    stage.submit("small", 100, queue="a", priority=5)
    stage.submit("other", 400, queue="a", user="zeta", notes=NODE, priority=5)
    stage.end(f"{node}-0")
    assert stage.run(after=1.0) == []
    assert kept(stage) == {"head": (node,)}
    stage.end(*[f"{node}-{card}" for card in range(1, 4)])
    assert stage.run(after=1.0) == ["head"]


def test_no_node_is_kept_for_who_is_shown_to_an_autoscaler_nor_for_who_comes_after_it() -> None:
    """A node is to come for the first of them."""
    stage = full_stage(autoscale=True)
    stage.submit("head", 400, queue="a", notes=NODE)
    assert stage.round() == ["head"]
    assert stage.turns["head"].shown
    # It is shown for a minute, and loses patience then.
    assert stage.round(after=61.0) == []
    assert stage.round(after=1.0) == []
    assert stage.round(after=20.0) == []
    ((node,),) = kept(stage).values()
    stage.submit("first", 400, queue="a", notes=NODE, priority=5)
    assert stage.round(after=1.0) == []
    assert list(kept(stage)) == ["first"]
    stage.end(f"{node}-0")
    stage.submit("small", 100, queue="b")
    assert stage.run(after=1.0) == []
    # For a minute after that nobody is shown who asks the same.
    assert stage.run(after=60.0) == ["first"]
    assert stage.turns["first"].shown
    assert stage.run(after=1.0) == ["small"]
