"""Walks of one who hands on what is kept for it: while others ask it has what it is due, and at most one pod more."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from support.queue_stage import Stage, queue

SETTINGS = QueueSettings(patience=30.0, hold=600.0)
NODES, CARDS = 3, 4
SIZES = ({"gpus": "4"}, {"gpus": "2"}, {"gpus": "3"})
# No two small ones go on a card, and no whole node empties by chance.
SMALL = 90
STEP, STEPS = 10.0, 80


class Walk:
    """`small` has pods of minutes without end; `large` an old one, and of higher priority more that ask the same."""

    def __init__(self, chance: Random, *, one_queue: bool) -> None:
        self._chance = chance
        self._small, self._large = "b", "b" if one_queue else "a"
        self.stage = Stage({"a": queue(), "b": queue()}, nodes=(CARDS,) * NODES, settings=SETTINGS)
        self._notes = chance.choice(SIZES)
        self.asks = 100 * int(self._notes["gpus"])
        self._ends: dict[str, float] = {}
        self._made = 0

    def begin(self) -> None:
        """All is in use before the first large one comes."""
        self._fill()
        for uid in self.stage.run():
            self._ends[uid] = self.stage.now + self._chance.uniform(STEP, 100.0)
        self._ask(priority=0)

    def step(self) -> None:
        """Time passes; who waits may come, go, and be let in."""
        stage, chance = self.stage, self._chance
        self._fill()
        before = [waiter.uid for waiter in stage.queues.waiting() if waiter.uid[0] == "l"]
        if len(before) < 2 or chance.random() < 0.1:
            self._ask(priority=chance.choice((1, 2, 3)))
        elif chance.random() < 0.1:
            stage.gone(chance.choice(before[1:]))
        for uid in [uid for uid, end in self._ends.items() if end <= stage.now + STEP]:
            del self._ends[uid]
            stage.end(uid)
        for uid in stage.run(after=STEP):
            self._ends[uid] = stage.now + (100.0 if uid[0] == "s" else chance.choice((300.0, 3_000.0)))

    def held(self) -> int:
        """What the large ones have."""
        ledger = self.stage.queues.books.ledger
        return sum(one.amounts[0] for uid in self.stage.pods if uid[0] == "l" and (one := ledger.of(uid)))

    def _fill(self) -> None:
        while sum(waiter.uid[0] == "s" for waiter in self.stage.queues.waiting()) < NODES * CARDS:
            self._submit("s", SMALL, queue=self._small, user="small")

    def _ask(self, *, priority: int) -> None:
        self._submit("l", self.asks, queue=self._large, user="large", notes=self._notes, priority=priority)

    def _submit(self, kind: str, compute: int, **more: Any) -> None:
        self._made += 1
        self.stage.submit(f"{kind}{self._made}", compute, **more)


@pytest.mark.parametrize("one_queue", [False, True], ids=["two queues", "two users of one queue"])
@pytest.mark.parametrize("seed", range(2))
def test_who_hands_on_has_no_more_than_it_is_due_and_one_pod(seed: int, *, one_queue: bool) -> None:
    """However many of its pods come in before the one that has waited longest; and that much it does come to."""
    walk, due = Walk(Random(seed), one_queue=one_queue), 100 * NODES * CARDS // 2
    walk.begin()
    most = 0
    for _ in range(STEPS):
        walk.step()
        most = max(most, walk.held())
        assert most < due + walk.asks
    assert most > due - walk.asks, "hardly any came in"
