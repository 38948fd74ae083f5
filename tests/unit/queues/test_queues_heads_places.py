"""What is kept for a head that waits for a node and for quota, and who comes to its node by a guarantee."""

from __future__ import annotations

from collections.abc import Mapping

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from support.queue_stage import Stage, queue

SETTINGS = QueueSettings(patience=10.0, hold=1_000.0)
WHOLE_NODE = {"gpus": "4"}


def stage_of(specs: Mapping[str, QueueSpec], lying: Mapping[str, str], *, nodes: int, last: int = 100) -> Stage:
    """Pods of 100 %, the `last` one perhaps of less, lie on GPUs, each of the queue that begins its name.

    Then `large` loses patience.
    """
    stage = Stage(specs, nodes=(4,) * nodes, settings=SETTINGS)
    for number, (name, gpu) in enumerate(lying.items(), start=1):
        compute = last if number == len(lying) else 100
        stage.submit(name, compute, queue=name[0], notes={"gpu-uuid": f"GPU-{gpu}"})
    assert len(stage.run()) == len(lying)
    stage.submit("large", 400, queue="a", notes=WHOLE_NODE)
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    return stage


def reason(stage: Stage, uid: str) -> str:
    """Why it waits."""
    return next(stage.queues.word(one) for one in stage.queues.waiting() if one.uid == uid)


def node_of(stage: Stage, uid: str) -> str:
    """Where it has room."""
    promise = stage.turns[uid].promise
    assert promise is not None
    return promise.node


def test_who_waits_for_a_node_is_left_the_quota_that_it_needs() -> None:
    """Others take of a limit above both what leaves it enough: else it would wait for quota once its node is empty."""
    specs = {"o": queue(limit=600), "a": queue("o"), "b": queue("o"), "c": queue()}
    lying = {f"c{number}": f"n0-{number}" for number in range(4)} | {"c4": "n1-0", "c5": "n2-0"}
    stage = stage_of(specs, lying, nodes=3)
    for number in range(3):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run(after=2.0) == ["b0", "b1"]
    assert {node_of(stage, uid) for uid in ("b0", "b1")} == {"n2"}
    assert reason(stage, "b2") == "Behind"
    stage.end("c4")
    assert stage.run(after=2.0) == ["large"]


def test_who_waits_for_quota_has_a_node_kept_meanwhile() -> None:
    """Else who needs no such quota would have filled the node by the time that the quota is there."""
    both = Quota(weight=2)
    specs = {"o": queue(limit=800, weight=2, memory=both), "a": queue("o"), "b": queue("o"), "c": queue()}
    lying = {f"b{number}": f"n0-{number}" for number in range(4)} | {"b4": "n1-0"}
    lying |= {f"c{number}": f"n1-{number}" for number in range(1, 4)} | {"c4": "n2-0"}
    stage = stage_of(specs, lying, nodes=3)
    assert reason(stage, "large") == "OverLimit"
    stage.submit("c9", 100, queue="c")
    assert stage.run(after=2.0) == []
    assert reason(stage, "c9") == "Behind"
    stage.end("b0")
    assert stage.run(after=2.0) == ["c9"]
    assert node_of(stage, "c9") == "n0"
    stage.end("c4")
    assert stage.run(after=2.0) == ["large"]


GUARANTEED = {"a": queue(), "c": queue(), "g": queue(guarantee=200)}


def test_what_is_guaranteed_is_taken_beside_a_node_that_is_kept_where_that_can_be() -> None:
    """And on it where no other has room."""
    stage = stage_of(GUARANTEED, {f"c{at}": f"n0-{at}" for at in range(4)} | {"c4": "n1-0"}, nodes=2, last=50)
    stage.end("c0")
    # Packed it would lie on the half that is free.
    stage.submit("g0", 50, queue="g")
    stage.submit("g1", 100, queue="g")
    assert sorted(stage.run(after=2.0)) == ["g0", "g1"]
    assert [node_of(stage, uid) for uid in ("g0", "g1")] == ["n0", "n1"]


def test_a_node_to_which_a_guarantee_came_is_kept_until_another_is_chosen() -> None:
    """Whoever comes after it in the same round would fill it, before the head is looked at again."""
    stage = stage_of(GUARANTEED, {f"c{at}": f"n0-{at}" for at in range(4)} | {"c4": "n1-0"}, nodes=2)
    memory = stage.queues.register.memory
    memory.taken({"n1"}, by="g0")
    assert memory.kept(now=stage.now) == {"large": ("n1",)}
    assert [memory.choose_anew("large"), memory.choose_anew("large")] == [True, False]


def test_what_a_sibling_has_borrowed_below_one_queue_is_nobodys_right_outside() -> None:
    """A head within its share there goes before others, though all that both are due is in use by the sibling."""
    specs = {"o": queue(weight=2, memory=Quota(weight=2)), "a": queue("o"), "b": queue("o"), "c": queue()}
    lying = {f"c{number}": f"n0-{number}" for number in range(4)}
    stage = stage_of(specs, lying | {f"b{at}": f"n{1 + at // 4}-{at % 4}" for at in range(8)}, nodes=3)
    stage.end("c0")
    stage.submit("c9", 100, queue="c")
    assert stage.run(after=2.0) == []
    assert reason(stage, "c9") == "Behind"
    stage.end("c1", "c2", "c3")
    assert stage.run(after=2.0) == ["large"]
