"""Nothing is kept for a head that can't be let in as things are, whoever it stood before or behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from aliquot_scheduler.deciding.promises import PROMISE
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from support.centre import NAMES
from support.queue_stage import Stage, queue
from support.reclaim_stage import ReclaimStage

replace = msgspec.structs.replace

SETTINGS = QueueSettings(patience=10.0, hold=1_000.0)
NODE = {"gpus": "4"}
TWO_OF_TWO = {"gpus": "2", "group-size": "2"}
SPECS: Mapping[str, QueueSpec] = {"p": queue(), "a": queue("p"), "b": queue(), "x": queue()}


def full_stage(*, nodes: int = 2) -> Stage:
    """All cards are in use by `b`, a pod on each, named for its node and card."""
    stage = Stage(SPECS, nodes=(4,) * nodes, settings=SETTINGS)
    for node in range(nodes):
        for card in range(4):
            stage.submit(f"n{node}-{card}", 100, queue="b", notes={"gpu-uuid": f"GPU-n{node}-{card}"})
    assert len(stage.run()) == 4 * nodes
    return stage


def kept(stage: Stage) -> dict[str, tuple[str, ...]]:
    """Which nodes are kept for whom."""
    return {uid: nodes for uid, nodes in stage.queues.register.memory.kept(now=stage.now).items() if nodes}


def empty(stage: Stage, *nodes: str) -> None:
    """Whoever was there at the beginning has ended."""
    stage.end(*[f"{node}-{card}" for node in nodes for card in range(4)])


def wait_for_nodes(stage: Stage, *uids: str, asks: int, notes: Mapping[str, str], group: str = "") -> tuple[str, ...]:
    """These lose patience; which nodes are kept for the first of them."""
    for uid in uids:
        stage.submit(uid, asks, queue="a", notes=notes, group=group)
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    ((head, nodes),) = kept(stage).items()
    assert head == uids[0]
    return nodes


def moves(stage: Stage, uid: str, *, to: str) -> None:
    """A pod is labelled for another queue."""
    pod = stage.pods[uid]
    metadata = replace(pod.metadata, labels=pod.metadata.labels | {NAMES.queue: to})
    stage.see(replace(pod, metadata=metadata))


def others_come(stage: Stage) -> list[str]:
    """Who of another queue's small pods come in at once, where a whole node has run empty."""
    for number in range(4):
        stage.submit(f"small{number}", 100, queue="b")
    return stage.run(after=1.0)


ALL_SMALL = ["small0", "small1", "small2", "small3"]


# --- what keeps a head out --------------------------------------------------------------------------------------------
def queue_held(stage: Stage) -> tuple[str, ...]:
    """An operator holds its queue."""
    nodes = wait_for_nodes(stage, "head", asks=400, notes=NODE)
    stage.queues.queues_seen({**SPECS, "a": queue("p", stop="hold")})
    return nodes


def parent_drained(stage: Stage) -> tuple[str, ...]:
    """Or drains the one above."""
    nodes = wait_for_nodes(stage, "head", asks=400, notes=NODE)
    stage.queues.queues_seen({**SPECS, "p": queue(stop="drain")})
    return nodes


def mate_gone(stage: Stage) -> tuple[str, ...]:
    """One of its group is deleted."""
    nodes = wait_for_nodes(stage, "head", "mate", asks=200, notes=TWO_OF_TWO, group="g")
    stage.gone("mate")
    return nodes


def mate_elsewhere(stage: Stage) -> tuple[str, ...]:
    """One of its group waits in another queue."""
    nodes = wait_for_nodes(stage, "head", "mate", asks=200, notes=TWO_OF_TWO, group="g")
    moves(stage, "mate", to="x")
    return nodes


def group_never(stage: Stage) -> tuple[str, ...]:
    """The limit of its queue is less by now than its group needs."""
    nodes = wait_for_nodes(stage, "head", "mate", asks=400, notes={"gpus": "4", "group-size": "2"}, group="g")
    assert len(nodes) == 2
    stage.queues.queues_seen({**SPECS, "a": queue("p", limit=400)})
    return nodes[:1]


@pytest.mark.parametrize("keep_out", [queue_held, parent_drained, mate_gone, mate_elsewhere, group_never])
def test_others_come_to_what_was_kept_for_who_can_not_come(keep_out: Callable[[Stage], tuple[str, ...]]) -> None:
    """At once: it stood empty for hours, for a pod that nobody asked any more."""
    stage = full_stage()
    nodes = keep_out(stage)
    empty(stage, *nodes)
    assert others_come(stage) == ALL_SMALL


def test_who_may_come_again_has_a_node_kept_again() -> None:
    """The hold is over, and it has waited long enough all the while."""
    stage = full_stage()
    queue_held(stage)
    assert stage.run(after=1.0) == []
    assert kept(stage) == {}
    stage.queues.queues_seen(SPECS)
    assert stage.run(after=1.0) == []
    assert list(kept(stage)) == ["head"]
    empty(stage, "n0", "n1")
    assert stage.run(after=1.0) == ["head"]


@pytest.mark.parametrize("goes", ["is deleted", "waits in another queue"])
def test_a_group_that_took_a_node_over_gives_it_back_once_it_is_whole_no_more(goes: str) -> None:
    """Its first pod still waits, and would never come in there; the group that is whole does."""
    stage = full_stage()
    (node,) = wait_for_nodes(stage, "head", "mate", asks=200, notes=TWO_OF_TWO, group="g")
    for uid in ("first", "second"):
        stage.submit(uid, 200, queue="a", group="h", notes=TWO_OF_TWO, priority=5)
    assert stage.run(after=1.0) == []
    assert kept(stage) == {"first": (node,)}
    if goes == "is deleted":
        stage.gone("second")
    else:
        moves(stage, "second", to="x")
    assert stage.run(after=1.0) == []
    assert kept(stage) == {"head": (node,)}
    empty(stage, node)
    assert stage.run(after=1.0) == ["head", "mate"]


def test_others_come_to_what_was_owed_to_who_may_not_come_for_a_doubt() -> None:
    """Its user's turns led to nothing, so nobody of that user comes while another one's pod waits."""
    stage = Stage({"own": queue(guarantee=400), "b": queue()}, nodes=(1,) * 4)
    for node in range(4):
        stage.submit(f"half{node}", 50, queue="b", notes={"gpu-uuid": f"GPU-n{node}-0"})
    assert len(stage.run()) == 4
    stage.submit("head", 100, queue="own", user="doubted")
    assert stage.run() == []
    assert stage.run(after=61.0) == []
    assert kept(stage) == {"head": ("n0",)}
    for number in range(3):
        stage.submit(f"bad{number}", 20, queue="own", user="doubted", priority=5)
    stage.submit("rival", 100, queue="own", user="other")
    assert len(stage.round()) == 3
    assert stage.round(after=PROMISE) == []
    waits = stage.queues.register.hall.standing("head")
    assert waits is not None
    assert stage.queues.register.lost_turns.keeps_waiting(waits)
    assert kept(stage) == {}
    stage.end("half0")
    assert stage.round(after=1.0) == ["rival"]


# --- the way back to the head -----------------------------------------------------------------------------------------
def stands_before(stage: Stage, uid: str, *, priority: int) -> None:
    """One of the head's user that asks the same comes in before it."""
    stage.submit(uid, 400, queue="a", notes=NODE, priority=priority)
    assert stage.run(after=1.0) == []
    assert list(kept(stage)) == [uid]


def one_of_two_is_gone(stage: Stage) -> None:
    """The first that stood before the head is deleted while another one stands before both."""
    stands_before(stage, "first1", priority=1)
    stands_before(stage, "first2", priority=2)
    stage.gone("first1")
    stage.gone("first2")


def edited_meanwhile(stage: Stage) -> None:
    """Somebody makes another queue."""
    stands_before(stage, "first", priority=1)
    stage.queues.queues_seen({**SPECS, "z": queue()})
    assert stage.run(after=1.0) == []
    stage.gone("first")


@pytest.mark.parametrize("goes", [one_of_two_is_gone, edited_meanwhile])
def test_a_head_gets_its_node_back_whatever_happened_meanwhile(goes: Callable[[Stage], None]) -> None:
    """The one that has run empty for it by then."""
    stage = full_stage()
    (node,) = wait_for_nodes(stage, "head", asks=400, notes=NODE)
    stage.end(f"{node}-0", f"{node}-1")
    goes(stage)
    assert kept(stage) == {"head": (node,)}


def test_a_head_that_has_a_node_of_its_own_by_then_keeps_that() -> None:
    """It waits in another queue meanwhile, behind nobody."""
    stage = full_stage()
    (node,) = wait_for_nodes(stage, "head", asks=400, notes=NODE)
    other = "n1" if node == "n0" else "n0"
    stands_before(stage, "first", priority=1)
    moves(stage, "head", to="x")
    assert stage.run(after=1.0) == []
    assert stage.run(after=1.0) == []
    assert kept(stage) == {"first": (node,), "head": (other,)}
    stage.gone("first")
    assert kept(stage) == {"head": (other,)}


# --- what else is left to heads ---------------------------------------------------------------------------------------
def test_who_has_lost_a_turn_does_not_stand_back_for_a_head_that_can_not_come() -> None:
    """Under a limit above both, which the head would need whole."""
    specs = {"p": queue(limit=400), "a": queue("p"), "b": queue("p")}
    stage = Stage(specs, nodes=(4, 4, 4), settings=QueueSettings(patience=60.0))
    stage.submit("runs", 100, queue="b")
    assert stage.run() == ["runs"]
    stage.submit("head", 400, queue="a", notes=NODE)
    assert stage.run() == []
    stage.submit("lost", 100, queue="b", user="other")
    assert stage.round() == ["lost"]
    for _ in range(8):
        stage.round(after=PROMISE)
    assert stage.round(after=61.0) == []
    assert stage.queues.is_in_line("lost")
    stage.queues.queues_seen({**specs, "a": queue("p", stop="hold")})
    assert stage.round(after=1.0) == ["lost"]


def test_a_head_for_which_room_is_made_elsewhere_keeps_no_other_node() -> None:
    """It is let in where that room is; what had run half empty for it is of use to others."""
    specs = {"own": queue(guarantee=400), "b": queue(guarantee=200), "d": queue()}
    stage = ReclaimStage(specs, nodes=(4, 4), settings=QueueSettings(patience=30.0))
    for node, whose in (("n0", "b"), ("n1", "d")):
        for card in range(4):
            firm = {"preemptible": "false"} if (node, card >= 2) == ("n0", True) else {}
            stage.submit(f"{node}-{card}", 100, queue=whose, notes={"gpu-uuid": f"GPU-{node}-{card}"} | firm)
    assert len(stage.run()) == 8
    stage.end("n0-0", "n0-1")
    stage.submit("head", 400, queue="own", notes=NODE)
    assert stage.run() == []
    for _ in range(5):
        assert stage.run(after=10.0) == []
    assert kept(stage) == {"head": ("n0",)}
    ((clearing),) = stage.decide(after=11.0)
    assert {place.node for place in clearing.places} == {"n1"}
    stage.evict(grace=600.0)
    stage.submit("s0", 100, queue="d")
    stage.submit("s1", 100, queue="d")
    assert stage.run(after=1.0) == ["s0", "s1"]
