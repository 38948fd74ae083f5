"""Over time queues hold what they are shown as their fair share, whatever the tree, as long as pods come and end."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from aliquot_scheduler.queues.charged.shares import exact_shares
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, plant
from support.queue_replay import Job, Replay

TREES = range(40 if os.environ.get("ALIQUOT_SOAK") else 3)
# Pieces that fill a GPU.
NODES, CARDS, PIECE = 2, 4, 25
CAPACITY = 100 * NODES * CARDS
HALF_LIFE = 120.0
# A few half-lives, and as long again to look at.
BEGINS, ENDS = 360.0, 720.0
# Of 800.
OFF = 40


class Crowd:
    """Each leaf has so many pods in the cluster at any time: whenever one ends, another comes."""

    def __init__(self, specs: dict[str, QueueSpec], *, pods: dict[str, int], runs: dict[str, float]) -> None:
        settings = QueueSettings(half_life=HALF_LIFE, penalty=10.0)
        self._replay = Replay(specs, nodes=NODES, cards=CARDS, settings=settings)
        self._pods = pods
        self._runs = runs
        self._live = Counter[str]()
        self._made = 0

    def held(self, chance: Random) -> dict[str, float]:
        """The mean that each leaf holds of compute, once things have settled."""
        replay, held, begun = self._replay, dict.fromkeys(self._pods, 0.0), BEGINS
        while replay.now < ENDS:
            self._come(chance)
            replay.desk.tell_time(replay.now)
            replay.decide()
            ends = replay.next_end()
            assert ends is not None, "nobody runs, and nobody is let in"
            if replay.now >= BEGINS:
                for job, _ in replay.running.values():
                    held[job.queue] += job.compute * (ends - replay.now)
            else:
                begun = ends
            replay.now = ends
            before = Counter(job.queue for job, _ in replay.running.values())
            replay.end_due()
            self._live -= before - Counter(job.queue for job, _ in replay.running.values())
        return {leaf: held[leaf] / (replay.now - begun) for leaf in self._pods}

    def _come(self, chance: Random) -> None:
        for leaf, wanted in self._pods.items():
            while self._live[leaf] < wanted:
                self._live[leaf] += 1
                self._made += 1
                self._replay.submit(
                    Job(
                        name=f"j{self._made:06}",
                        queue=leaf,
                        user=leaf,
                        kind="",
                        at=self._replay.now,
                        runs=self._runs[leaf] * chance.uniform(0.8, 1.2),
                        compute=PIECE,
                        memory=100,
                    )
                )


def planted(chance: Random) -> tuple[dict[str, QueueSpec], list[str]]:
    """A few queues, some with others below them, and their leaves."""
    specs: dict[str, QueueSpec] = {}
    leaves: list[str] = []
    for top in range(chance.randint(2, 3)):
        name, below = f"t{top}", chance.choice([0, 2, 3])
        if below:
            specs[name] = queue(chance, limit=chance.choice([None, None, 500]))
        else:
            specs[name] = queue(chance, guarantee=chance.choice([None, 100, 200]), limit=chance.choice([None, 300]))
        children = [f"{name}c{number}" for number in range(below)]
        specs |= {child: queue(chance, parent=name, guarantee=chance.choice([None, 0, 100])) for child in children}
        leaves += children or [name]
    return specs, leaves


def queue(chance: Random, *, parent: str = "", guarantee: int | None = None, limit: int | None = None) -> QueueSpec:
    """One with such a quota and some weight."""
    quota = Quota(guarantee=guarantee, limit=limit, weight=chance.choice([1, 1, 2, 3]))
    return QueueSpec(parent=parent, compute=quota, namespaces=("*",))


@pytest.mark.parametrize("seed", TREES)
def test_what_queues_hold_comes_to_their_fair_share(seed: int) -> None:
    """Everybody asks on and on, in pods of a minute or less: the mean held is the share, within 40 of 800 %."""
    chance = Random(seed)
    specs, leaves = planted(chance)
    pods = {leaf: chance.choice([2, 6, 15, 40]) for leaf in leaves}
    runs = {leaf: chance.choice([20.0, 60.0]) for leaf in leaves}
    asked = {leaf: PIECE * count for leaf, count in pods.items()}
    due = exact_shares(plant(specs), dimension=COMPUTE, capacity=CAPACITY, demand=asked)
    held = Crowd(specs, pods=pods, runs=runs).held(chance)
    assert {leaf: (round(held[leaf]), float(due[leaf])) for leaf in leaves if abs(held[leaf] - due[leaf]) > OFF} == {}
