"""Whoever leads for long and whoever begins now agree: what is remembered from sweep to sweep keeps nobody out."""

from __future__ import annotations

import random

import pytest

from aliquot_core.inventory import Gpu
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import make_node, sick
from support.queue_actors import MEMORY, MODELS, NODES
from support.queue_stage import Stage
from support.queue_world import QueueWorld

# Nobody ever loses patience, so nobody stands back for anybody: only cards and quota count.
NEVER = QueueSettings(patience=600_000.0, hold=0.0, owed=600_000.0, stale_gang=80_000.0)
STEPS = ["create"] * 8 + ["create_gang"] * 3 + ["settle"] * 9 + ["finish"] * 6 + ["delete"] * 2 + ["plant", "change"]


class Leading(QueueWorld):
    """A world that settles after what happens: whoever can be let in is in, and bound."""

    def __init__(self) -> None:
        self._cards: dict[int, tuple[list[Gpu], bool]] = {}
        super().__init__(settings=NEVER)

    def change(self) -> None:
        """A card falls sick or recovers, a node is cordoned or opened."""
        at = self.chance.randrange(len(NODES))
        cards = self._cards_of(at)
        if self.chance.random() < 0.3:
            cards[0] = sick(cards[0])
        self._cards[at] = cards, self.chance.random() < 0.2
        self._tell_node(self, at)

    def _tell_node(self, stage: Stage, at: int) -> None:
        cards, cordoned = self._cards[at]
        stage.picture.node_seen(make_node(f"n{at}", cards, cordoned=cordoned))

    def settle(self) -> None:
        """Rounds until nobody comes in any more."""
        while self.round():
            self.bind(*self.with_room())

    def let_in_by_another(self) -> list[str]:
        """Whom one lets in who begins now, with the same pods, nodes and queues."""
        other = Stage({}, nodes=NODES, memory=MEMORY, models=MODELS, settings=NEVER)
        other.now = self.now
        other.desk.tell_time(self.now)
        for at in self._cards:
            self._tell_node(other, at)
        other.queues.queues_seen(self.specs)
        for pod in self.pods.values():
            other.see(pod)
        return [uid for uid in other.round() if other.turns[uid].promise]


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_who_begins_now_lets_in_nobody_whom_the_leader_keeps_out(first: int) -> None:
    """Walks of 50 steps; after each time that all is at rest it is compared."""
    for seed in range(first, first + 4):
        world = Leading()
        world.chance = random.Random(seed)
        for name in world.chance.choices(STEPS, k=50):
            getattr(world, name)()
            if name == "settle" and not world.queues.under_way():
                assert world.let_in_by_another() == [], seed
