"""Nobody goes for one that would be refused for their own sake once they stand in line again; and groups go rightly."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from aliquot_scheduler.queues.said.spec import Preemption, QueueSpec, Quota
from support.queue_stage import queue
from support.reclaim_stage import ReclaimStage

CARD = Quota(guarantee=80_000)
OWNER = {"red": queue(guarantee=100), "blue": queue()}


class Remade:
    """A stage on which whoever is sent away is made again at once."""

    def __init__(self, specs: dict[str, QueueSpec], *, nodes: tuple[int, ...]) -> None:
        self.stage = ReclaimStage(specs, nodes=nodes)
        self.sent = Counter[str]()
        self._asked: dict[str, dict[str, Any]] = {}

    def make(self, job: str, **asked: Any) -> None:
        """A job's pod comes."""
        self._asked[job] = asked
        self.stage.submit(f"{job}-{self.sent[job]}", **asked)

    def cycle(self) -> int:
        """Decide, send away, make again, let in; how many went."""
        self.stage.run(after=11.0)
        gone = self.stage.reclaimed()
        for job in [uid.rpartition("-")[0] for uid in gone]:
            self.sent[job] += 1
            self.make(job, **self._asked[job])
        self.stage.run(after=1.0)
        return len(gone)

    def fill(self) -> None:
        """All come in for whom there is room."""
        while self.stage.run(after=1.0):
            pass


def test_nobody_goes_for_one_whom_the_remade_would_keep_out() -> None:
    """The victim's next pod demands what its queue is guaranteed in compute, and the candidate's compute is lent."""
    remade = Remade({"d": queue(guarantee=200, memory=CARD), "b": queue(memory=CARD)}, nodes=(2,))
    remade.make("d0", compute=100, memory=1_000, queue="d")
    for job in ("d1", "d2"):
        remade.make(job, compute=50, memory=20_000, queue="d")
    remade.fill()
    remade.make("b1", compute=50, memory=60_000, queue="b")
    assert sum(remade.cycle() for _ in range(5)) == 0
    assert remade.stage.used("d")[0] == 200


def test_one_goes_for_whom_the_remade_has_no_claim_to_what_is_freed() -> None:
    """Its queue has what it is guaranteed without it, so the owner comes in, and the remade one waits."""
    remade = Remade({"red": queue(guarantee=100), "blue": queue(guarantee=100)}, nodes=(2,))
    for number in range(2):
        remade.make(f"blue{number}", compute=100, queue="blue")
    remade.fill()
    remade.make("red0", compute=100, queue="red")
    assert [remade.cycle() for _ in range(4)] == [1, 0, 0, 0]
    assert remade.stage.used("red")[0] == 100


def test_a_group_that_comes_again_asks_as_one() -> None:
    """It is larger than what is missing of its guarantee, so it demands nothing, and nobody else has to go."""
    specs = {"d": queue(guarantee=200, memory=CARD), "b": queue(memory=CARD), "e": queue()}
    remade = Remade(specs, nodes=(3,))
    remade.make("d0", compute=100, memory=60_000, queue="d", notes={"preemptible": "false"})
    for number in range(2):
        asked = {"compute": 60, "memory": 60_000, "queue": "d", "group": "gang", "notes": {"group-size": "2"}}
        remade.make(f"g{number}", **asked)
    remade.fill()
    for number in range(2):
        remade.make(f"e{number}", compute=40, memory=1_000, queue="e")
    remade.fill()
    remade.make("b0", compute=30, memory=60_000, queue="b")
    assert sum(remade.cycle() for _ in range(4)) == 2
    assert sorted(remade.sent) == ["g0", "g1"]
    assert remade.stage.used("b")[0] == 30


# The last four went to and fro, 45 were taken as they came.
SEEDS = (*range(45), 149, 268, 317, 333)


@pytest.mark.parametrize("first", range(3))
def test_whatever_is_guaranteed_in_whatever_dimension_they_come_to_rest(first: int) -> None:
    """Nothing new comes after a while, and every victim is made again: soon nobody goes any more."""
    sent = 0
    for seed in SEEDS[first::3]:
        remade = _crowd(random.Random(seed))
        for _ in range(8):
            sent += remade.cycle()
        assert [remade.cycle() for _ in range(4)] == [0] * 4, seed
        assert max(remade.sent.values(), default=0) <= 2, seed
    assert sent > 5


def _crowd(chance: random.Random) -> Remade:
    """Three queues on few cards, some guaranteed compute, some memory; each comes, and fills what is free."""
    cards = chance.randint(2, 4)
    compute, memory = 100 * cards, 80_000 * cards
    specs = {}
    for name in "abc":
        percent = min(compute, chance.choice((0, 100, 150, 200)))
        mib = min(memory, chance.choice((0, 40_000, 80_000, 160_000)))
        compute, memory = compute - percent, memory - mib
        within = Preemption(within_queue=chance.choice(("", "SameUser", "AnyUser")))
        bounds = Quota(guarantee=mib) if mib else None
        specs[name] = queue(guarantee=percent or None, memory=bounds, preemption=within)
    remade = Remade(specs, nodes=(cards,))
    for name in chance.sample("abc", k=3):
        for number in range(chance.randint(2, 6)):
            _come(remade, f"{name}{number}", chance, name)
        remade.fill()
    return remade


def _come(remade: Remade, job: str, chance: random.Random, name: str) -> None:
    asked = {
        "compute": chance.choice((20, 30, 50, 50, 60, 100)),
        "memory": chance.choice((1_000, 20_000, 40_000, 60_000)),
        "queue": name,
        "priority": chance.choice((0, 0, 5)),
    }
    if chance.random() < 0.2:
        notes = {"group-size": "2", "group-min": chance.choice("12")}
        for twin in "xy":
            remade.make(f"{job}{twin}", **asked, group=job, notes=notes)
    else:
        remade.make(job, **asked)


# --- groups ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "least", "compute", "asked"), [(4, 3, 25, 50), (4, 2, 25, 75), (3, 2, 30, 60)], ids=str
)
def test_a_group_is_never_cut_below_its_minimum(size: int, least: int, compute: int, asked: int) -> None:
    """On one card: whoever was to spare goes too once the others go, since it could not run alone."""
    stage = ReclaimStage(OWNER, nodes=(1,))
    notes = {"group-size": str(size), "group-min": str(least)}
    for number in range(size):
        stage.submit(f"g{number}", compute, queue="blue", group="gang", notes=notes)
    stage.run()
    stage.submit("red0", asked, queue="red")
    assert stage.reclaimed() == [f"g{number}" for number in range(size)]
    assert stage.run(after=1.0) == ["red0"]


def test_a_group_is_spared_where_another_is_enough() -> None:
    """It came first as the lesser harm, and with the one that went after it all of it can stay."""
    stage = ReclaimStage(OWNER, nodes=(1, 1))
    notes = {"group-size": "2", "group-topology": "spread"}
    for number in range(2):
        stage.submit(f"g{number}", 20, queue="blue", group="gang", notes=notes)
    while stage.run(after=1.0):
        pass
    stage.submit("big", 70, queue="blue", notes={"gpu-uuid": "GPU-n0-0"})
    stage.submit("other", 70, queue="blue", notes={"gpu-uuid": "GPU-n1-0"})
    while stage.run(after=1.0):
        pass
    stage.submit("red0", 70, queue="red", notes={"gpu-uuid": "GPU-n0-0"})
    assert stage.victims() == ["big"]


def _room_for_a_third() -> ReclaimStage:
    """Of a group of three, of which two have to run, two are in; blue0 has to go for the third."""
    stage = ReclaimStage({"red": queue(guarantee=300), "blue": queue()}, nodes=(3,))
    stage.submit("blue0", 100, queue="blue")
    stage.run()
    for number in range(3):
        stage.submit(f"g{number}", 100, queue="red", group="gang", notes={"group-size": "3", "group-min": "2"})
    assert stage.run(after=1.0) == ["g0", "g1"]
    assert stage.victims(after=11.0) == ["blue0"]
    return stage


def test_nobody_goes_for_one_of_a_group_of_which_too_few_are_in_by_now() -> None:
    """It would come in alone, below the minimum, so it waits for the others."""
    stage = _room_for_a_third()
    stage.end("g0", "g1")
    assert stage.run(after=1.0) == []
    assert stage.evict() == []
    (last,) = stage.queues.waiting()
    assert stage.queues.notice(last).reason == "GangIncomplete"


def test_room_is_made_on_for_one_whose_group_has_its_minimum_with_it() -> None:
    """One has ended, and one is left: with that it may run."""
    stage = _room_for_a_third()
    stage.end("g0")
    stage.run(after=1.0)
    assert stage.evict() == ["blue0"]
    stage.gone("blue0")
    assert stage.run(after=1.0) == ["g2"]
