"""Queues under every order of events: limits, guarantees, cards, gangs and books, worked out anew after each step."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_actors import MEMORY, MODELS, NODES, SETTINGS
from support.queue_stage import Stage, queue
from support.queue_world import STEPS, QueueWorld

ALL = [step.__name__ for step, times in STEPS.items() for _ in range(times)]


@given(st.lists(st.tuples(st.sampled_from(ALL), st.integers(0, 2**16)), min_size=30, max_size=60))
@settings(max_examples=15, deadline=None)
def test_no_order_of_events_breaks_a_limit_a_guarantee_or_the_books(steps: list[tuple[str, int]]) -> None:
    """Trees that change under load, lost turns, restarts, sick cards, leaping clocks, namespaces that go."""
    world = QueueWorld()
    for name, seed in steps:
        world.chance = random.Random(seed)
        getattr(world, name)()
        world.check()
    world.check_to_the_end()


@pytest.mark.parametrize("first", range(0, 90, 10))
def test_long_walks_do_not_either(first: int) -> None:
    """What a shrinking search is too slow for: walks of 80 steps, each by its seed."""
    for seed in range(first, first + 10):
        world = QueueWorld()
        world.chance = random.Random(seed)
        for name in world.chance.choices(ALL, k=80):
            getattr(world, name)()
            world.check()
        world.check_to_the_end()


@pytest.mark.parametrize("first", [0, 14])
def test_groups_lie_as_they_want_to_whenever_a_leader_dies(first: int) -> None:
    """Walks with many groups, whose leaders die after they have lifted gates, before anybody is bound."""
    for seed in range(first, first + 6):
        world = QueueWorld()
        world.chance = random.Random(seed)
        for name in world.chance.choices([*ALL, *["create_gang"] * 6, *["die_at_turns"] * 4], k=80):
            getattr(world, name)()
            world.check()


@pytest.mark.parametrize("first", [0, 6])
def test_no_group_is_left_that_could_lie_somewhere(first: int) -> None:
    """Walks with many groups: whichever still waits when all others have ended could not lie in any way."""
    for seed in range(first, first + 6):
        world = QueueWorld()
        world.chance = random.Random(seed)
        for name in world.chance.choices([*ALL, *["create_gang"] * 20], k=40):
            getattr(world, name)()
        world.check_to_the_end()


@pytest.mark.parametrize("seed", range(20))
def test_the_same_snapshot_makes_the_same_decisions(seed: int) -> None:
    """Whatever order pods and queues are told in, and whoever leads."""
    world = QueueWorld()
    world.chance = random.Random(seed)
    for name in world.chance.choices(["create", "create", "create_gang", "let_in", "finish"], k=60):
        getattr(world, name)()
    pods, specs = list(world.pods.values()), list(world.specs.items())
    decisions = []
    for _ in range(3):
        world.chance.shuffle(pods)
        world.chance.shuffle(specs)
        stage = Stage({}, nodes=NODES, memory=MEMORY, models=MODELS, settings=SETTINGS)
        stage.queues.queues_seen(dict(specs))
        for pod in pods:
            stage.see(pod)
        rounds = [stage.round(after=60.0) for _ in range(6)]
        decisions.append([(uid, stage.turns[uid].promise) for told in rounds for uid in told])
    assert decisions[0] == decisions[1] == decisions[2]


@pytest.mark.parametrize("rivals", ["a", "ab"])
@pytest.mark.parametrize("seed", range(8))
def test_no_head_is_passed_for_longer_than_is_said(seed: int, rivals: str) -> None:
    """A stream of small pods that never ends: the large one is in within twice its patience and the longest run.

    Where small pods of its own queue fill that queue's share, they have to end before others do: another run.
    """
    chance = random.Random(seed)
    patience, runs = 100.0, 150.0
    stage = Stage({"a": queue(), "b": queue()}, nodes=(4, 4), settings=QueueSettings(patience=patience, hold=3 * runs))
    ends: dict[str, float] = {}
    large, made = "", 0
    while "large" not in ends:
        stage.end(*[uid for uid, end in ends.items() if end <= stage.now and uid in stage.pods])
        for _ in range(3):
            made += 1
            stage.submit(f"s{made}", chance.choice((30, 60, 100)), queue=chance.choice(rivals))
        if stage.now >= 50.0 and not large:
            # It is the first in line: those before it would be in before it.
            for waiter in stage.queues.waiting():
                stage.gone(waiter.uid)
            large, since = "large", stage.now
            stage.submit(large, 400, queue="a")
        for uid in stage.run(after=chance.uniform(5.0, 15.0)):
            ends[uid] = stage.now + chance.uniform(0.2, 1.0) * runs
        assert not large or stage.now - since <= 2 * patience + len(rivals) * runs + 15.0, "it waits too long"


def test_what_is_kept_for_a_head_is_not_refused_to_it() -> None:
    """Another pod of the same shape that comes before it by its share gets no room there; the head does."""
    stage = Stage({"a": queue()}, nodes=(2,), settings=QueueSettings(patience=10.0, hold=100.0))
    for number in range(6):
        stage.submit(f"m{number}", 100, queue="a", user="many")
    assert stage.run() == ["m0", "m1"]
    stage.submit("f", 100, queue="a", user="few")
    assert stage.run(after=20.0) == []
    stage.end("m0", "m1")
    assert stage.run() == ["m2", "f"]


def test_a_head_that_can_not_come_in_does_not_stop_the_cluster() -> None:
    """Pods that never end keep every node: one is kept for the head, the others take whoever comes."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(2, 2, 2), settings=QueueSettings(patience=10.0, hold=100.0))
    for number in range(3):
        stage.submit(f"ever{number}", 110, queue="b", notes={"gpus": "2"})
    assert len(stage.run()) == 3
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    stage.run()
    stage.now = 20.0
    for number in range(9):
        stage.submit(f"small{number}", 10, queue="b")
    assert len(stage.run()) == 9
    nodes = {node for number in range(9) for node, _ in stage.picture.holdings.of(f"small{number}")}
    assert len(nodes) <= 2
    stage.submit("late", 30, queue="b")
    stage.desk.pod_gone(stage.pods["large"])
    stage.queues.pod_gone("large")
    assert stage.run() == ["late"]


OWED = QueueSettings(patience=7 * 86_400.0, hold=500.0, owed=0.0)


@pytest.mark.parametrize("seed", range(8))
def test_a_guarantee_that_lies_in_pieces_is_met_once_one_node_has_run_dry(seed: int) -> None:
    """Others go on borrowing what is beyond it, but not on the node that is kept; patience has no part in it."""
    chance = random.Random(seed)
    runs = 150.0
    stage = Stage({"a": queue(guarantee=400), "b": queue(), "c": queue()}, nodes=(4, 4), settings=OWED)
    ends: dict[str, float] = {}
    made, since = 0, None
    while "large" not in ends:
        stage.end(*[uid for uid, end in ends.items() if end <= stage.now and uid in stage.pods])
        for _ in range(3):
            made += 1
            stage.submit(f"s{made}", chance.choice((30, 60, 100)), queue=chance.choice("bc"))
        if stage.now >= 50.0 and since is None:
            since = stage.now
            stage.submit("large", 400, queue="a")
        for uid in stage.run(after=chance.uniform(5.0, 15.0)):
            ends[uid] = stage.now + chance.uniform(0.2, 1.0) * runs
        assert since is None or stage.now - since <= runs + 15.0, "it waits too long"


def test_of_guarantees_that_lie_in_pieces_the_oldest_has_a_node_kept() -> None:
    """One at a time; another guarantee may have that node, and then another node is kept."""
    specs = {"a": queue(guarantee=100), "b": queue(guarantee=100), "c": queue()}
    stage = Stage(specs, nodes=(1, 1, 1, 1, 1), settings=OWED)
    for number in range(5):
        stage.submit(f"c{number}", 50, queue="c", notes={"gpu-uuid": f"GPU-n{number}-0"})
    assert len(stage.run()) == 5
    stage.submit("b0", 100, queue="b")
    assert stage.run(after=1.0) == []
    stage.submit("a0", 100, queue="a")
    stage.submit("late", 50, queue="c")
    assert stage.run(after=1.0) == ["late"]
    kept = kept_for(stage, "b0")
    assert kept_for(stage, "a0") == ()
    assert _node_of(stage, "late") not in kept
    stage.end(f"c{kept[0][1:]}")
    assert stage.run(after=1.0) == ["a0"]
    assert _node_of(stage, "a0") == kept[0]
    stage.run(after=1.0)
    other = kept_for(stage, "b0")
    assert other != kept
    stage.end(f"c{other[0][1:]}")
    assert stage.run(after=1.0) == ["b0"]
    assert stage.queues.register.memory.kept(now=stage.now) == {}


def test_a_guarantee_in_pieces_is_owed_after_a_while_alone() -> None:
    """Where pods end soon it is whole again by itself, and a node that stands idle for it costs everybody."""
    stage = Stage({"a": queue(guarantee=100), "c": queue()}, nodes=(1, 1, 1), settings=QueueSettings())
    for number in range(3):
        stage.submit(f"c{number}", 60, queue="c")
    stage.run()
    stage.submit("a0", 100, queue="a")
    assert stage.run() == []
    for after, kept in ((59.0, False), (2.0, True)):
        stage.run(after=after)
        assert bool(kept_for(stage, "a0")) is kept


def test_who_asks_longest_is_owed_first() -> None:
    """Of two that came at once always the same; until the tree is another one, by which its pod may never come in."""
    specs = {"a": queue(guarantee=100), "b": queue(guarantee=100), "c": queue()}
    stage = Stage(specs, nodes=(1, 1, 1, 1, 1), settings=OWED)
    for number in range(5):
        stage.submit(f"c{number}", 50, queue="c", notes={"gpu-uuid": f"GPU-n{number}-0"})
    stage.run()
    for uid in ("a0", "b0"):
        stage.submit(uid, 100, queue=uid[0])
    for _ in range(3):
        stage.run(after=1.0)
        assert (bool(kept_for(stage, "a0")), bool(kept_for(stage, "b0"))) == (True, False)
    stage.queues.queues_seen(specs | {"a": queue(limit=50)})
    stage.run(after=1.0)
    assert (bool(kept_for(stage, "a0")), bool(kept_for(stage, "b0"))) == (False, True)


@pytest.mark.parametrize("nodes", [(6,), (3, 3)])
def test_no_node_is_kept_for_a_guarantee_that_a_limit_keeps_out_of_use(nodes: tuple[int, ...]) -> None:
    """Its parent keeps 200 % idle, of which its own queue may use 100: what is free is for all others meanwhile."""
    specs = {"a": queue(), "c": queue(guarantee=200, lend=0), "cx": queue("c", limit=100)}
    stage = Stage(specs, nodes=nodes, settings=OWED)
    stage.submit("in", queue="cx")
    assert stage.run() == ["in"]
    stage.submit("second", queue="cx")
    assert stage.run(after=1.0) == []
    for number in range(4):
        stage.submit(f"a{number}", queue="a")
    assert stage.run(after=1.0) == ["a0", "a1", "a2", "a3"]
    assert kept_for(stage, "second") == ()
    stage.end("in")
    assert stage.run(after=1.0) == ["second"]


def kept_for(stage: Stage, uid: str) -> tuple[str, ...]:
    """The nodes that are kept for a head."""
    return stage.queues.register.memory.kept(now=stage.now).get(uid, ())


def _node_of(stage: Stage, uid: str) -> str:
    ((node, _),) = stage.picture.holdings.of(uid)
    return node


def test_what_is_kept_for_a_guarantee_is_not_kept_for_ever() -> None:
    """After the time for which heads may hold others up, all may pass: who runs there may never end."""
    stage = Stage({"a": queue(guarantee=100), "c": queue()}, nodes=(1, 1, 1), settings=OWED)
    for number in range(3):
        stage.submit(f"ever{number}", 60, queue="c")
    assert len(stage.run()) == 3
    stage.submit("a0", 100, queue="a")
    stage.run(after=1.0)
    kept = kept_for(stage, "a0")
    only = {"gpu-uuid": f"GPU-{kept[0]}-0"}
    stage.submit("small", 20, queue="c", notes=only)
    assert stage.run(after=400.0) == []
    assert stage.run(after=101.0) == ["small"]
