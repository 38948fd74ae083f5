"""Who has run for longer than heads of lines may hold others up: nobody is kept waiting for their end."""

from __future__ import annotations

import random

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

PATIENCE, HOLD, RUNS = 100.0, 400.0, 150.0
SETTINGS = QueueSettings(patience=PATIENCE, hold=HOLD)
OPEN = {"a": queue(), "b": queue()}


def reason(stage: Stage, uid: str) -> str:
    """The word that a waiting pod is told."""
    return next(stage.queues.word(waiter) for waiter in stage.queues.waiting() if waiter.uid == uid)


def gang(stage: Stage, *, size: int, queue: str = "a") -> list[str]:
    """A group of pods with a GPU each."""
    uids = [f"g{number}" for number in range(size)]
    for uid in uids:
        stage.submit(uid, 100, queue=queue, group="g", notes={"group-size": str(size)})
    return uids


class Swarm:
    """Small pods that come without end, and run for a while."""

    def __init__(self, stage: Stage, *, seed: int, queues: str) -> None:
        self._stage = stage
        self._chance = random.Random(seed)
        self._queues = queues
        self._ends: dict[str, float] = {}
        self._made = 0

    def step(self) -> list[str]:
        """Some end, some come, and some time later turns are given; who is let in beside them."""
        stage, chance = self._stage, self._chance
        stage.end(*[uid for uid, end in self._ends.items() if end <= stage.now and uid in stage.pods])
        for _ in range(3):
            self._made += 1
            stage.submit(f"s{self._made}", chance.choice((30, 60, 100)), queue=chance.choice(self._queues))
        found = stage.run(after=chance.uniform(5.0, 15.0))
        self._ends |= {uid: stage.now + chance.uniform(0.2, 1.0) * RUNS for uid in found if uid.startswith("s")}
        return [uid for uid in found if not uid.startswith("s")]

    def none_waits(self) -> None:
        """Those who wait give up."""
        for waiter in self._stage.queues.waiting():
            self._stage.gone(waiter.uid)


def test_a_gang_that_waits_for_one_who_never_ends_holds_the_cluster_up_once() -> None:
    """It asks for all there is: for the time of holding all stand back for it, and never again."""
    stage = Stage(OPEN, nodes=(2, 2), settings=SETTINGS)
    stage.submit("ever", 10, queue="b")
    assert stage.run() == ["ever"]
    gang(stage, size=4)
    stage.run()
    stage.submit("small", 50, queue="b")
    assert stage.run(after=PATIENCE) == []
    assert reason(stage, "small") == "Behind"
    assert stage.run(after=HOLD - PATIENCE - 1.0) == []
    assert stage.run(after=1.0) + stage.run() == ["small"]
    for number in range(200):
        stage.submit(f"later{number}", 1, 10, queue="b")
        assert stage.run(after=25.0) == [f"later{number}"], stage.now
    assert reason(stage, "g0") == "GangWaits"


@pytest.mark.parametrize("seed", range(12))
def test_back_filling_never_delays_a_head_beyond_its_bound_beside_those_who_stay(seed: int) -> None:
    """One on each node never ends; a head that fits beside them is in within twice its patience and the longest run."""
    stage = Stage(OPEN, nodes=(4, 4), settings=SETTINGS)
    for number in range(2):
        stage.submit(f"ever{number}", 100 if seed % 2 else 10, queue="b", notes={"gpu-uuid": f"GPU-n{number}-0"})
    assert len(stage.run()) == 2
    swarm = Swarm(stage, seed=seed, queues="ab" if seed % 3 else "b")
    while stage.now < HOLD + 10.0 * seed:
        swarm.step()
    swarm.none_waits()
    heads, since = {"large"}, stage.now
    if seed % 4 < 2:
        stage.submit("large", 300, queue="a")
    else:
        heads = set(gang(stage, size=6))
    while heads:
        heads -= set(swarm.step())
        assert stage.now - since <= 2 * PATIENCE + RUNS + 15.0, "it waits too long"


@pytest.mark.parametrize("seed", range(6))
def test_back_filling_never_delays_who_waits_for_quota_beyond_its_bound_either(seed: int) -> None:
    """Others of its queue take what comes free of the limit, until its patience ends; one of them never ends."""
    stage = Stage({"a": queue(limit=400)}, nodes=(4, 4), settings=SETTINGS)
    stage.submit("ever", 100, queue="a")
    assert stage.run() == ["ever"]
    swarm = Swarm(stage, seed=seed, queues="a")
    while stage.now < HOLD + 10.0 * seed:
        swarm.step()
    swarm.none_waits()
    stage.submit("large", 300, queue="a", user="other")
    since = stage.now
    while "large" not in swarm.step():
        assert stage.now - since <= 2 * PATIENCE + RUNS + 15.0, "it waits too long"


def test_nobody_stands_back_for_quota_that_one_who_stays_has() -> None:
    """What the others leave of the limit would not do, however long it was kept."""
    stage = Stage({"a": queue(limit=400)}, nodes=(4, 4), settings=SETTINGS)
    stage.submit("ever", 150, queue="a")
    assert stage.run() == ["ever"]
    stage.submit("large", 300, queue="a")
    stage.run()
    stage.submit("small", 10, queue="a")
    assert stage.run(after=PATIENCE) == []
    assert reason(stage, "small") == "Behind"
    assert stage.run(after=HOLD - PATIENCE) == ["small"]
    for number in range(100):
        stage.submit(f"later{number}", 1, 10, queue="a")
        assert stage.run(after=25.0) == [f"later{number}"], stage.now


def test_a_node_is_kept_where_pods_come_and_go_and_not_where_one_stays() -> None:
    """Though the other one is emptier."""
    stage = Stage(OPEN, nodes=(2, 2), settings=SETTINGS)
    stage.submit("ever", 10, queue="b", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.run() == ["ever"]
    stage.now = HOLD
    for number in range(2):
        stage.submit(f"short{number}", 100, queue="b", notes={"gpu-uuid": f"GPU-n1-{number}"})
    assert len(stage.run()) == 2
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    stage.run()
    stage.run(after=2 * PATIENCE)
    kept = stage.queues.register.memory.kept(now=stage.now)
    assert kept == {"large": ("n1",)}


def test_no_node_is_kept_for_whole_gpus_where_one_who_asks_for_memory_alone_stays() -> None:
    """It takes no compute, and yet its GPU is never whole."""
    stage = Stage(OPEN, nodes=(2,), settings=SETTINGS)
    stage.submit("ever", None, 1000, queue="b")
    assert stage.run() == ["ever"]
    stage.now = HOLD
    stage.submit("large", 200, 2000, queue="a")
    stage.run()
    stage.run(after=2 * PATIENCE)
    assert stage.queues.register.memory.kept(now=stage.now).get("large", ()) == ()


def test_a_pod_that_says_when_it_is_ended_is_counted_on_once_that_is_near() -> None:
    """Until then it stays like any other that has run for so long."""
    stage = Stage(OPEN, nodes=(2,), settings=SETTINGS)
    stage.submit("says", 10, queue="b", spec={"activeDeadlineSeconds": int(5 * HOLD)})
    stage.submit("soon", 10, queue="b", spec={"activeDeadlineSeconds": int(2 * HOLD)})
    assert stage.run() == ["says", "soon"]
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    stage.run()
    kept = stage.queues.register.memory.kept
    # Later it lets all pass for longer in between.
    periods = range(1, 4)
    impatient = [period * (PATIENCE + HOLD) + PATIENCE + 50.0 for period in periods]
    found = {}
    for now in impatient:
        stage.run(after=now - stage.now)
        found[now] = kept(now=stage.now).get("large", ())
    assert found == {now: ("n0",) if now >= 4 * HOLD else () for now in impatient}


def test_who_is_gone_or_comes_anew_does_not_stay() -> None:
    """Another pod of that name has run for no time yet."""
    stage = Stage(OPEN, nodes=(2,), settings=SETTINGS)
    stage.submit("old", 10, queue="b")
    stage.run()
    stage.run(after=HOLD)
    stayers = stage.queues.register.stayers
    assert "old" in stayers
    stage.end("old")
    assert "old" not in stayers
    stage.submit("old", 10, queue="b")
    assert stage.run(after=HOLD) == ["old"]
    assert "old" not in stayers
    stage.run(after=HOLD)
    assert "old" in stayers


def test_where_heads_may_not_hold_others_up_nothing_is_noted() -> None:
    """Nobody is ever kept waiting for anybody."""
    stage = Stage(OPEN, nodes=(2,), settings=QueueSettings(hold=0.0))
    stage.submit("old", 10, queue="b")
    stage.run()
    stage.run(after=10_000.0)
    assert "old" not in stage.queues.register.stayers
