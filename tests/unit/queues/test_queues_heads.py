"""How long the head of a line is passed where others are guaranteed something, under limits, beside groups.

And that nothing idles for it which who comes in before it could use.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from aliquot_scheduler.queues.charged.shares import shares
from aliquot_scheduler.queues.judging.rules import Rules
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE, Tree
from aliquot_scheduler.queues.waiting.waiter import Candidate
from support.queue_stage import Stage, queue

PATIENCE, RUNS = 100.0, 150.0
# A look comes up to 15 s after what it looks for.
BOUND = 2 * PATIENCE + RUNS + 15.0


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """How it lies, of twelve GPUs in three nodes, and what its queue and the others are guaranteed."""

    pods: int = 1
    topology: str = ""
    mine: int | None = None
    others: int | None = None
    trials: int = 28


HEADS = {
    "a pod": Head(),
    "a gang": Head(pods=4),
    "a gang on one node": Head(pods=4, topology="node"),
    "a pod inside a guarantee": Head(mine=400),
    "a pod inside a guarantee, beside others": Head(mine=400, others=400),
    "a gang inside a guarantee, beside others": Head(pods=4, mine=400, others=200),
    "a gang on one node inside a guarantee, beside others": Head(pods=4, topology="node", mine=400, others=400),
    "a pod beside others' guarantees": Head(others=400),
    "a gang beside others' guarantees": Head(pods=4, others=200),
    "a gang on one node beside others' guarantees": Head(pods=4, topology="node", others=400),
}


def specs_of(head: Head, chance: Random) -> dict[str, QueueSpec]:
    """A tree with limits that leave the head its share, by the weight of what hangs below `o` too."""
    limit, mine, theirs = chance.choice((None, 800)), chance.choice(("", "o")), chance.choice(("", "o"))
    weight = 2 if mine and theirs else 1
    return {
        "o": queue(limit=limit, weight=weight, memory=Quota(weight=weight)),
        "a": queue(mine, guarantee=head.mine),
        "b": queue(theirs, guarantee=head.others, limit=chance.choice((None, 600, 800))),
        "c": queue(limit=chance.choice((None, 200, 400))),
    }


def submit_others(stage: Stage, made: int, chance: Random) -> None:
    """More than end meanwhile, of two queues: single pods, and now and then a group."""
    for number in range(4):
        stage.submit(f"s{made}-{number}", chance.choice((30, 60, 100)), queue=chance.choice("bbc"))
    if chance.random() < 0.3:
        for number in range(2):
            size = {"group-size": "2"}
            stage.submit(f"g{made}-{number}", chance.choice((50, 100)), queue="c", group=f"g{made}", notes=size)


def cards_due(tree: Tree) -> int:
    """How many whole GPUs the head's queue is due beside others that ask without end: a node's at most.

    What others are guaranteed comes first: beside 400 of 800 % under one limit it is due half of what is left.
    """
    due = shares(tree, dimension=COMPUTE, capacity=1200, demand=dict.fromkeys("abc", 10_000))
    return min(4, due["a"] // 100)


def submit_head(stage: Stage, head: Head) -> set[str]:
    """It asks what its queue is due, in one piece or in pods of a GPU."""
    cards = cards_due(stage.queues.books.ledger.tree)
    pods = cards if head.pods > 1 else 1
    notes = {"group-size": str(pods)} if pods > 1 else {"gpus": str(cards)}
    notes |= {"group-topology": head.topology} if head.topology else {}
    names = {f"head{number}" for number in range(pods)}
    for name in sorted(names):
        stage.submit(name, 100 * cards // pods, queue="a", group="head" if pods > 1 else "", notes=notes)
    return names


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, head in HEADS.items() for seed in range(head.trials)]
)
def test_a_head_is_in_within_its_bound(name: str, seed: int) -> None:
    """At most twice its patience and the longest run, while streams of others never end."""
    chance = Random(seed)
    settings = QueueSettings(patience=PATIENCE, hold=3 * RUNS)
    stage = Stage(specs_of(HEADS[name], chance), nodes=(4, 4, 4), settings=settings)
    ends: dict[str, float] = {}
    head, since, made = set[str](), 0.0, 0
    while not head or not head <= ends.keys():
        stage.end(*[uid for uid, end in ends.items() if end <= stage.now and uid in stage.pods])
        made += 1
        submit_others(stage, made, chance)
        if stage.now >= RUNS / 2 and not head:
            for waiter in stage.queues.waiting():
                stage.gone(waiter.uid)
            head, since = submit_head(stage, HEADS[name]), stage.now
        for uid in stage.run(after=chance.uniform(5.0, 15.0)):
            ends[uid] = stage.now + chance.uniform(0.2, 1.0) * RUNS
        assert not head or stage.now - since <= BOUND, "it waits too long"


# --- who comes in before a head --------------------------------------------------------------------------------------
def candidates_first(stage: Stage, uid: str) -> Iterator[Candidate]:
    """A head for whom nodes are kept, and who of its user asks the same and comes in before it."""
    register = stage.queues.register
    head = register.hall.standing(uid)
    assert head is not None
    asks = register.hall.candidate(head, books=register.books).shape
    for one in register.hall.lines[head.queue].heads(head.user, runs=register.books.runs):
        if one.uid == uid or (one.first.place < head.place and asks in {one.shape, one.first.number}):
            yield one


def idles(stage: Stage, one: Candidate, *, on: tuple[str, ...]) -> bool:
    """Whether it would have room there now, and may be let in."""
    register = stage.queues.register
    placing = Placing(
        picture=stage.picture,
        cards=register.cards,
        rooms=stage.desk,
        runs=register.books.runs,
        bounds=register.inside.bounds,
        stayers=register.stayers,
        now=stage.now,
    )
    if Rules(ledger=register.books.ledger, cards=register.cards).refusal(one) is not None:
        return False
    promises = placing.place(one, but=frozenset(stage.picture.nodes) - set(on))
    placing.take_back(promises)
    return bool(promises)


# A pod alone, one that nobody binds, one that is enough of its group by itself, and a group of two.
KINDS = {
    "pod": {"gpus": "4"},
    "bad": {"gpus": "4"},
    "one": {"gpus": "4", "group-size": "2", "group-min": "1"},
    "two": {"gpus": "2", "group-size": "2"},
}


class Crowd(Stage):
    """A user's pods of a few shapes, alone and in groups, of all priorities, some of which nobody binds; and others."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        specs = {"a": queue(guarantee=self.chance.choice((None, 400))), "b": queue(), "c": queue()}
        super().__init__(specs, nodes=(4, 4, 4), settings=QueueSettings(patience=60.0, hold=450.0))
        self.ends: dict[str, float] = {}
        self.made = 0

    def step(self) -> None:
        """Some come, some end, and turns are given out."""
        self.end(*[uid for uid, end in self.ends.items() if end <= self.now and uid in self.pods])
        self.made += 1
        for number in range(self.chance.choice((0, 1, 2))):
            self.submit(f"s{self.made}-{number}", self.chance.choice((60, 100)), queue=self.chance.choice("bc"))
        if self.chance.random() < 0.3:
            self._submit_large()
        for uid in self.round(after=self.chance.uniform(5.0, 15.0)):
            if not uid.startswith("bad"):
                self.bind(uid)
                self.ends[uid] = self.now + self.chance.uniform(30.0, 150.0)

    def _submit_large(self) -> None:
        kind = self.chance.choice(("pod", "pod", "bad", "one", "two"))
        notes = KINDS[kind]
        group, priority = f"g{self.made}" if "group-size" in notes else "", self.chance.choice((0, 0, 5, 9))
        for number in range(2 if kind == "two" else 1):
            uid, compute = f"{kind}{self.made}-{number}", 200 if kind == "two" else 400
            self.submit(uid, compute, queue="a", notes=notes, group=group, priority=priority)


@pytest.mark.parametrize("seed", range(12))
def test_no_node_that_is_kept_idles_while_somebody_could_come_there(seed: int) -> None:
    """Neither for the head nor for who asks the same and comes in before it, whoever stands before whom and why."""
    crowd, looked = Crowd(seed), 0
    for _ in range(120):
        crowd.step()
        for uid, nodes in crowd.queues.register.memory.kept(now=crowd.now).items():
            for one in candidates_first(crowd, uid):
                looked += 1
                assert not idles(crowd, one, on=nodes), f"{one.uid} could come to {nodes}, kept for {uid}"
    assert looked, "no node was kept"
