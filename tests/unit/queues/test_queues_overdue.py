"""Heads that await a node below limits that others fill: they keep nothing, and an autoscaler sees them in time."""

from __future__ import annotations

import random

import pytest

from aliquot_scheduler.queues.letting_in import overdue
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import gpus, make_node
from support.growing import go, lifted, shown
from support.queue_stage import H100, Stage, queue

OF_H100 = {"gpu-model": "*H100*"}
# Seconds.
STEP, PATIENCE, HOLD = 10, 300, 300
WAITS = QueueSettings(patience=PATIENCE, hold=HOLD)


class Busy:
    """Of four A100 all are used below a limit of as many, by singles that come and go without end."""

    def __init__(self, *, settings: QueueSettings = WAITS) -> None:
        specs = {"p": queue(limit=400), "c": queue("p", autoscale=True), "d": queue("p")}
        self.stage = Stage(specs, nodes=(4,), settings=settings)
        self.chance = random.Random(2)
        self.ends: dict[str, float] = {}
        self._made = 0
        for _ in range(8):
            self._submit()
        self.step(0)

    def _submit(self) -> None:
        self._made += 1
        self.stage.submit(f"d{self._made}", queue="d")

    def step(self, seconds: int = STEP) -> list[str]:
        """Who ends makes room; who is in of the others, or shown."""
        stage = self.stage
        for uid in [uid for uid, end in self.ends.items() if end <= stage.now]:
            del self.ends[uid]
            stage.end(uid)
        found = go(stage, after=seconds)
        for uid in [uid for uid in found if uid.startswith("d")]:
            self.ends[uid] = stage.now + self.chance.randrange(120, 420, 10)
            self._submit()
        return [uid for uid in found if not uid.startswith("d")]

    def until(self, uid: str, *, at_most: int) -> float:
        """How long it takes for one to be shown or in; no GPU idles before that."""
        began = self.stage.now
        while self.stage.now <= began + at_most:
            if uid in self.step():
                return self.stage.now - began
            assert len(self.ends) == 4, self.stage.now - began
        pytest.fail(f"{uid} is neither shown nor in after {at_most} s")


def test_no_quota_is_kept_for_who_awaits_a_node_and_its_gate_is_lifted_in_time() -> None:
    """All four GPUs are used all the while; an autoscaler sees it once it has been passed over for long enough."""
    busy = Busy()
    busy.stage.submit("c0", 300, queue="c", notes=OF_H100)
    assert busy.until("c0", at_most=PATIENCE + STEP) >= PATIENCE
    assert (lifted(busy.stage)[:1], shown(busy.stage)) == (["c0"], [])
    for _ in range(60):
        busy.step()
        assert len(busy.ends) == 4


def test_it_comes_in_like_any_head_once_its_node_is_there() -> None:
    """From then on quota is kept for it, as it comes free."""
    busy = Busy()
    busy.stage.submit("c0", 300, queue="c", notes=OF_H100)
    busy.until("c0", at_most=PATIENCE + STEP)
    busy.stage.picture.node_seen(make_node("n1", gpus("n1", 4, model=H100)))
    busy.stage.beat()
    began = busy.stage.now
    while "c0" not in busy.step():
        assert busy.stage.now - began < 2 * (PATIENCE + HOLD)


def test_no_limit_is_shown_twice_at_a_time() -> None:
    """Of two that would be over the limit together one is; the other when that one's time is over."""
    busy = Busy()
    for name, compute in (("c0", 300), ("c1", 200)):
        busy.stage.submit(name, compute, queue="c", user=name, notes=OF_H100)
    busy.until("c0", at_most=PATIENCE + STEP)
    assert "c1" not in lifted(busy.stage)
    minutes = busy.stage.queues.books.ledger.tree.nodes["c"].spec.autoscale_minutes
    assert busy.until("c1", at_most=int(60 * minutes) + STEP) >= 60 * minutes - STEP


def test_no_more_are_shown_than_a_list_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler needs no longer list to begin with."""
    monkeypatch.setattr(overdue, "MOST_SHOWN", 3)
    busy = Busy()
    for number in range(5):
        busy.stage.submit(f"c{number}", 50 + number, queue="c", notes=OF_H100)
    for _ in range(2 * PATIENCE // STEP):
        busy.step()
    assert [uid for uid in lifted(busy.stage) if uid.startswith("c")] == ["c0", "c1", "c2"]


def test_time_alone_is_enough() -> None:
    """Nobody comes, and nobody goes."""
    stage = Stage({"o": queue(limit=200, autoscale=True)}, nodes=(4,), settings=WAITS)
    stage.submit("x", 200, queue="o")
    assert go(stage) == ["x"]
    stage.submit("c0", 200, queue="o", notes=OF_H100)
    assert go(stage) == []
    assert go(stage, after=PATIENCE - 1) == []
    assert go(stage, after=1) == ["c0"]


def test_who_could_have_a_node_that_is_there_is_not_shown_beyond_quota() -> None:
    """Quota is kept for it instead, as for any head, and it comes in."""
    busy = Busy()
    busy.stage.submit("c0", 300, queue="c")
    found: list[str] = []
    while not found:
        found = busy.step()
        assert busy.stage.now < 3 * (PATIENCE + HOLD)
    assert "c0" in busy.stage.queues.books.ledger.charges()


def test_no_node_is_owed_to_who_awaits_one() -> None:
    """Its guarantee is held back for others of its queue; the node is owed to another queue's that lies in pieces."""
    specs = {"c": queue(guarantee=200, autoscale=True), "e": queue(guarantee=200), "b": queue()}
    stage = Stage(specs, nodes=(2, 2), settings=WAITS)
    for number in range(4):
        stage.submit(f"b{number}", queue="b")
    assert len(go(stage)) == 4
    stage.submit("c0", 200, queue="c", notes={**OF_H100, "gpus": "2"})
    stage.submit("c1", 200, queue="c", notes={"gpus": "2"})
    stage.submit("e0", 200, queue="e", notes={"gpus": "2"})
    go(stage)
    for node in ("n0", "n1"):
        stage.end(next(uid for uid in sorted(stage.pods) if stage.pods[uid].spec.node_name == node))
    for _ in range(3):
        go(stage, after=WAITS.owed)
    assert stage.queues.register.memory.owed(now=stage.now) <= {"c1", "e0"}
    assert stage.queues.register.memory.owed(now=stage.now)
