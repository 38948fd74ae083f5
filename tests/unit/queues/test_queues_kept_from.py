"""From whom nodes are kept for heads that lost patience, beside the rule as written; and who is looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import fsum
from random import Random
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.charged.fair import due_of
from aliquot_scheduler.queues.judging.rules import Cause, Refusal
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from aliquot_scheduler.queues.said.tree import COMPUTE
from aliquot_scheduler.queues.said.tree import MEMORY as MEMORY_OF
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from support.centre import gpus, make_node
from support.queue_stage import A100, H100, Stage, queue
from support.share_definition import Judge, sound_trees
from support.share_oracle import Oracle

NODES, CARDS, MEMORY = 3, 4, 80_000
CAPACITY = (100 * NODES * CARDS, MEMORY * NODES * CARDS)


class Scene:
    """Three levels of queues with weights and priorities, users who hold and wait, and time in which they did."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.specs = self._specs()
        parents = {spec.parent for spec in self.specs.values()}
        self.leaves = [name for name in self.specs if name not in parents]
        self.stage = Stage(
            self.specs, nodes=(CARDS,) * NODES, memory=MEMORY, settings=QueueSettings(half_life=1_000.0, hold=0)
        )
        for number in range(self.chance.randint(10, 40)):
            self.stage.submit(
                f"p{number:02}",
                self.chance.choice((20, 50, 100)),
                self.chance.choice((100, 10_000, 60_000)),
                queue=self.chance.choice(self.leaves),
                user=self.chance.choice("uvw"),
            )
        self.stage.run()
        self.stage.run(after=self.chance.choice((1.0, 300.0)))
        if self.chance.random() < 0.3:
            self._divide(self.chance.choice(self.leaves))
        self.now = self.stage.now + self.chance.choice((0.0, 500.0))
        register = self.stage.queues.register
        register.tell_time(self.now)
        self.books, self.cards, self.lines = register.books, register.cards, register.hall.lines
        waiting = (one for one in self.stage.queues.waiting() if self.stage.queues.is_in_line(one.uid))
        self.waiting = sorted(waiting, key=lambda one: one.uid)

    def _divide(self, leaf: str) -> None:
        """It gets children while its own pods run."""
        for child in (f"{leaf}l", f"{leaf}r")[: self.chance.randint(1, 2)]:
            self.specs[child] = queue(leaf)
            for number in range(self.chance.randint(1, 4)):
                self.stage.submit(f"{child}{number}", self.chance.choice((20, 50)), 10_000, queue=child)
        self.stage.queues.queues_seen(self.specs)
        self.stage.run(after=1.0)

    def _specs(self) -> dict[str, QueueSpec]:
        specs: dict[str, QueueSpec] = {}
        for number in range(self.chance.randint(2, 10)):
            depths = {name: len(self._way(name, specs)) for name in specs}
            parent = self.chance.choice(["", *(name for name, depth in depths.items() if depth < 3)])
            weight = self.chance.choice((1, 1, 3))
            priority = self.chance.choice((0, 0, 0, 1))
            specs[f"q{number}"] = queue(parent, weight=weight, memory=Quota(weight=weight), priority=priority)
        return specs

    @staticmethod
    def _way(name: str, specs: Mapping[str, QueueSpec]) -> list[str]:
        way = [name]
        while specs[way[-1]].parent:
            way.append(specs[way[-1]].parent)
        return way

    def way(self, name: str) -> list[str]:
        """From the uppermost queue down to it."""
        return self._way(name, self.specs)[::-1]


class Written:
    """The rule as it is written, worked out of all charges for each pair."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._used: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
        self._asked: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
        bound = list(scene.stage.queues.register.inside.bound.values())
        for waiter in bound:
            self._count(self._used, waiter)
        for waiter in scene.waiting:
            self._count(self._asked, waiter)
        self._due: list[dict[str, Fraction]] = []
        for dim in (0, 1):
            demand = dict.fromkeys(scene.specs, 0)
            for waiter in (*bound, *scene.waiting):
                demand[waiter.queue] += waiter.amounts[dim]
            self._due.append(Oracle(scene.specs, demand).shares(CAPACITY[dim]))

    def _count(self, sums: dict[Any, list[int]], waiter: Waiter) -> None:
        for side in (*self._scene.way(waiter.queue), (waiter.queue, waiter.user)):
            sums[side] = [so_far + more for so_far, more in zip(sums[side], waiter.amounts[:2], strict=True)]

    def is_kept(self, head: Waiter, other: Waiter) -> bool:
        """Whether what is kept for a head is kept from another pod."""
        if (head.queue, head.user) == (other.queue, other.user):
            return True
        if head.queue == other.queue:
            users: set[Any] = {
                side for side in (*self._used, *self._asked) if isinstance(side, tuple) and side[0] == head.queue
            }
            needs = {user: [self._used[user][dim] + self._asked[user][dim] for dim in (0, 1)] for user in users}
            due = [
                self._equal(self._due[dim][head.queue], {user: needs[user][dim] for user in users}) for dim in (0, 1)
            ]
            used = {user: self._part(self._scene.books.users.of(user, now=self._scene.now)) for user in users}
            return self._is_within(head, (head.queue, head.user), users, due=due, lately=used)
        ways = zip(self._scene.way(head.queue), self._scene.way(other.queue), strict=False)
        mine, theirs = next((a, b) for a, b in ways if a != b)
        specs = self._scene.specs
        return specs[theirs].priority <= specs[mine].priority and self._reaches(head, mine)

    def _reaches(self, head: Waiter, mine: str) -> bool:
        """Whether its share does among the siblings of one of those above it."""
        specs, way = self._scene.specs, self._scene.way(head.queue)
        siblings: set[Any] = {
            name
            for name, spec in specs.items()
            if spec.parent == specs[mine].parent and spec.priority <= specs[mine].priority
        }
        lately = {name: self._part(self._scene.books.usage.of(name, now=self._scene.now)) for name in siblings}
        if self._is_within(head, mine, siblings, due=self._due, lately=lately):
            return True
        if mine == head.queue:
            return False
        below = [name for name, spec in specs.items() if spec.parent == mine]
        fair = [sum(min(Fraction(self._used[one][dim]), self._due[dim][one]) for one in below) for dim in (0, 1)]
        fits = all(fair[dim] + head.amounts[dim] <= self._due[dim].get(mine, 0) for dim in (0, 1))
        return fits and self._reaches(head, way[way.index(mine) + 1])

    def _is_within(
        self,
        head: Waiter,
        mine: Any,
        siblings: set[Any],
        *,
        due: Sequence[Mapping[Any, Fraction]],
        lately: Mapping[Any, float],
    ) -> bool:
        used, amounts = self._used[mine], head.amounts
        if all(used[dim] + amounts[dim] <= due[dim].get(mine, 0) for dim in (0, 1)):
            return True
        if any(used[dim] >= due[dim].get(mine, 0) for dim in (0, 1) if amounts[dim]):
            return False
        parts = {side: self._part([due[dim].get(side, 0) for dim in (0, 1)]) for side in siblings}
        of_all = fsum(lately[side] for side in siblings if parts[side])
        return lately[mine] * fsum(parts.values()) <= parts[mine] * of_all

    @staticmethod
    def _equal(total: Fraction, needs: Mapping[Any, int]) -> dict[Any, Fraction]:
        """All rise together until each has enough."""
        levels = dict.fromkeys(needs, Fraction())
        while total > 0 and (rising := [side for side in needs if levels[side] < needs[side]]):
            step = min(total / len(rising), *(needs[side] - levels[side] for side in rising))
            for side in rising:
                levels[side] += step
                total -= step
        return levels

    @staticmethod
    def _part(amounts: Sequence[float | Fraction]) -> float:
        return max(float(amounts[dim]) / CAPACITY[dim] for dim in (0, 1))


def alone(waiter: Waiter) -> Candidate:
    """One pod."""
    return Candidate(members=(waiter,), amounts=waiter.amounts)


@given(st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_a_node_is_kept_from_whom_the_rule_as_written_says(seed: int) -> None:
    """Over three levels, weights, priorities and users, for each head and whoever else waits; some share a node."""
    scene = Scene(seed)
    written, heads = Written(scene), scene.waiting[::3]
    memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
    nodes = {head.uid: {f"kept-for-{head.uid}", f"shared{number % 3}"} for number, head in enumerate(heads)}
    for head in heads:
        memory.head_refused(head.uid, now=scene.now)
        memory.keep_for(alone(head), tuple(nodes[head.uid]))
    # No room is asked for here.
    placing = cast("Placing", None)
    cards, lines = scene.cards, scene.lines
    keeping = Keeping(books=scene.books, cards=cards, lines=lines, memory=memory, placing=placing, now=scene.now)
    for other in scene.waiting:
        before = [nodes[head.uid] for head in heads if head is not other and written.is_kept(head, other)]
        expected = set[str]().union(*before)
        assert keeping.kept_from(alone(other)) == expected, (other.uid, other.queue, other.user)


def placing_of(stage: Stage, *, now: float) -> Placing:
    """As a round has it."""
    register = stage.queues.register
    return Placing(
        picture=stage.picture,
        cards=register.cards,
        rooms=stage.desk,
        runs=register.books.runs,
        bounds=register.inside.bounds,
        stayers=register.stayers,
        now=now,
    )


@pytest.mark.parametrize("free", [0, 1, 3])
def test_who_is_not_asked_would_have_no_room(free: int) -> None:
    """Whom a quick look leaves no room beside what is kept for others has none by a close look; and some are so."""
    left, none = 0, 0
    for seed in range(40):
        scene = Scene(seed)
        stage, register = scene.stage, scene.stage.queues.register
        stage.end(*sorted(register.inside.bound)[:free])
        memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
        for number, head in enumerate(scene.waiting[:NODES]):
            memory.head_refused(head.uid, now=scene.now)
            memory.keep_for(alone(head), (f"n{number}",))
        placing, lines = placing_of(stage, now=scene.now), scene.lines
        keeping = Keeping(
            books=scene.books, cards=scene.cards, lines=lines, memory=memory, placing=placing, now=scene.now
        )
        for other in map(alone, scene.waiting):
            has_room = bool(placing.roomy(other) - keeping.kept_from(other))
            assert keeping.leaves_room()(other) >= has_room, (seed, other.uid)
            left += has_room
            none += not keeping.leaves_room()(other)
    assert none, "nobody was passed over"
    assert left or not free


def test_all_who_stand_back_are_told_for_whom_however_many_they_are() -> None:
    """Also those at whom nobody looks closely, since many would have room where it is kept from them."""
    specs = {"a": queue(), "b": queue()}
    stage = Stage(specs, nodes=(2,), settings=QueueSettings(patience=10.0, hold=1_000.0))
    for number in range(2):
        stage.submit(f"b{number}", 100, queue="b", user="first")
    assert stage.run() == ["b0", "b1"]
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    assert stage.run() == []
    for number in range(40):
        stage.submit(f"s{number:02}", 20 + number, queue="b", user=f"u{number:02}")
    assert stage.run(after=20.0) == []
    stage.end("b0")
    for after in (0.0, 0.1, 1.5):
        assert stage.run(after=after) == []
        waiting = {waiter.uid: stage.queues.notice(waiter) for waiter in stage.queues.waiting()}
        small = [notice for uid, notice in waiting.items() if uid != "large"]
        assert {notice.reason for notice in small} == {"Behind"}
        assert all("(queue a, UID large) has waited" in notice.message for notice in small)
    stage.end("b1")
    assert stage.run(after=0.1) == ["large"]
    (waiter, *_) = (one for one in stage.queues.waiting())
    assert stage.queues.word(waiter) == "NoRoom"


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Two queues on eight GPUs or more: how many each uses and asks for, and whether a head of `b` goes before `a`."""

    a: QueueSpec = queue()
    a_uses: int
    b_uses: int
    # Of `a`; `b` asks for as many, and its head for one more.
    asks: int = 8
    model: str = ""
    cordoned: int = 0
    kept: bool


DUE = {
    # b is due 600 of 1200, and 400 of the 800 that pods can have.
    "four GPUs more idle": Due(a_uses=3, b_uses=5, cordoned=-1, kept=True),
    "they are cordoned": Due(a_uses=3, b_uses=5, cordoned=1, kept=False),
    # Of four H100 a has two, and may have no more: so b is due 600 of 800.
    "a asks for H100, of which it may have no more": Due(
        a=queue(models={"*H100*": ModelQuota(compute=Quota(limit=200))}), a_uses=2, b_uses=5, model=H100, kept=True
    ),
    "a asks for any, and may have A100": Due(
        a=queue(models={"*H100*": ModelQuota(compute=Quota(limit=200))}), a_uses=2, b_uses=5, kept=False
    ),
}


@pytest.mark.parametrize("case", DUE.values(), ids=DUE)
def test_nodes_are_kept_by_the_shares_that_are_shown(case: Due) -> None:
    """What pods can't have, since nodes are cordoned or a limit for a model forbids, is nobody's share."""
    stage = Stage({"a": case.a, "b": queue()}, nodes=(4, 4), models={0: A100, 1: H100}, memory=MEMORY)
    cards = [f"GPU-n1-{at}" for at in range(4)] + [f"GPU-n0-{at}" for at in range(4)]
    for number in range(case.a_uses + case.b_uses):
        mine = "a" if number < case.a_uses else "b"
        stage.submit(f"p{number}", 100, queue=mine, notes={"gpu-uuid": cards[number]})
    assert len(stage.run()) == case.a_uses + case.b_uses
    if case.cordoned:
        stage.picture.node_seen(make_node("n2", gpus("n2", 4), cordoned=case.cordoned > 0))
        stage.beat()
    for number in range(case.asks):
        stage.submit(f"a{number}", 100, queue="a", notes={"gpu-model": case.model} if case.model else {})
        stage.submit(f"b{number}", 100, queue="b")
    register = stage.queues.register
    register.tell_time(stage.now + 100.0)
    memory, now = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0), stage.now + 100.0
    waiting = {waiter.uid: alone(waiter) for waiter in stage.queues.waiting()}
    memory.head_refused("b0", now=now)
    memory.keep_for(waiting["b0"], ("n0",))
    keeping = Keeping(
        books=register.books,
        cards=register.cards,
        lines=register.hall.lines,
        memory=memory,
        placing=placing_of(stage, now=now),
        now=now,
    )
    assert (keeping.kept_from(waiting["a0"]) == {"n0"}) == case.kept


@pytest.mark.parametrize("model", ["*H100*", "*A100*"], ids=["of a model that is not there", "of one that is"])
def test_nodes_are_kept_for_a_user_beside_who_awaits_a_node(model: str) -> None:
    """Of four GPUs two users are due half each, or a third each with one who could have all; one head asks its half."""
    stage = Stage({"c": queue(autoscale=True)}, nodes=(4,))
    for uid, user, compute in (("o1", "one", 200), ("o2", "one", 50), ("t1", "two", 150)):
        stage.submit(uid, compute, queue="c", user=user, notes={"gpus": "2"} if compute > 100 else {})
    assert len(stage.run()) == 3
    stage.submit("n1", 400, queue="c", user="three", notes={"gpu-model": model})
    for number in range(8):
        stage.submit(f"o{number + 3}", 50, queue="c", user="one")
    stage.submit("t2", 50, queue="c", user="two")
    register, now = stage.queues.register, stage.now + 100.0
    register.tell_time(now)
    memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
    waiting = {waiter.uid: alone(waiter) for waiter in stage.queues.waiting()}
    memory.head_refused("t2", now=now)
    memory.keep_for(waiting["t2"], ("n0",))
    placing = placing_of(stage, now=now)
    keeping = Keeping(
        books=register.books, cards=register.cards, lines=register.hall.lines, memory=memory, placing=placing, now=now
    )
    assert (keeping.kept_from(waiting["o3"]) == {"n0"}) == (model == "*H100*")


def test_shares_by_which_nodes_are_kept_are_fair_by_definition() -> None:
    """Of a cluster of which a part is cordoned, with pods on both parts, in compute and memory."""
    judged = 0
    for seed in range(60):
        chance = Random(seed)
        specs, *claims = sound_trees(chance)
        stage = Stage(
            {name: msgspec.structs.replace(spec, namespaces=("*",)) for name, spec in specs.items()},
            nodes=(CARDS,) * NODES,
            memory=100,
        )
        leaves = sorted(claims[0].asked)
        for number in range(chance.randint(12, 40)):
            stage.submit(f"p{number:02}", chance.choice((20, 50, 100)), 20, queue=chance.choice(leaves))
        stage.run()
        for node in ("n0", "n1"):
            stage.picture.node_seen(make_node(node, gpus(node, CARDS, memory=100), cordoned=True))
        stage.beat()
        register = stage.queues.register
        register.tell_time(stage.now)
        ledger, holdings = register.books.ledger, register.inside.bound.values()
        for dim, whole in zip((COMPUTE, MEMORY_OF), claims, strict=True):
            away = {
                uid for uid in register.inside.bound if {n for n, _ in stage.picture.holdings.of(uid)} & {"n0", "n1"}
            }
            there = 100 * CARDS + sum(one.amounts[dim] for one in holdings if one.uid in away)
            asked = {leaf: ledger.accounts[leaf].used[dim] + ledger.accounts[leaf].asked[dim] for leaf in leaves}
            claim = msgspec.structs.replace(whole, asked=asked, capacity=there)
            if claim.short() and any(map(claim.idle, claim.parents)):
                continue
            found = due_of(ledger, dimension=dim, reach=register.cards.reach())
            assert not list(Judge(claim).faults({leaf: found[leaf] for leaf in leaves})), seed
            judged += sum(asked.values()) > there
    assert judged > 10


def heads_of(count: int, *, memory: SweepMemory) -> list[Candidate]:
    """So many heads, each in a queue of its own, the first of them for the longest time."""
    stage = Stage({f"q{number:02}": queue() for number in range(count)})
    for number in range(count):
        stage.submit(f"p{number:02}", queue=f"q{number:02}")
    found = [alone(waiter) for waiter in sorted(stage.queues.waiting(), key=lambda one: one.uid)]
    for number, head in enumerate(found):
        memory.head_refused(head.uid, now=float(number))
    return found


NO_ROOM = Refusal(cause=Cause.CARDS)


def test_heads_are_looked_at_a_few_at_a_time_and_all_in_turns() -> None:
    """Whoever waits longest first; who was looked at less than a second ago is not, and nobody is left out."""
    memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
    heads = {head.uid: head for head in heads_of(20, memory=memory)}
    found: list[set[str]] = []
    for now in (100.0, 100.1, 100.2, 100.3, 101.0, 101.1):
        found.append(memory.to_look_at(now=now))
        for uid in found[-1]:
            memory.looks.looked_at(heads[uid], NO_ROOM, now=now, closes=False)
    names = sorted(heads)
    assert found == [set(names[:8]), set(names[8:16]), set(names[16:]), set(), set(names[:8]), set(names[8:16])]


def test_what_was_said_of_a_head_is_said_until_it_is_looked_at_again() -> None:
    """Else its condition would be written anew each time that it is looked at, and each time that it is not."""
    memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
    (head,) = heads_of(1, memory=memory)
    mark = head.first.mark
    held_back = Refusal(cause=Cause.HELD_BACK)
    memory.looks.looked_at(head, held_back, now=5.0, closes=True)
    for version in (1, 2, 3):
        memory.begin(version=version)
        memory.end(version=version, broken_off=False, complete=True)
        assert memory.why_before("q00", mark) == held_back
        assert memory.looks.closing() == {head.uid}
    memory.looks.looked_at(head, NO_ROOM, now=7.0, closes=False)
    assert memory.why_before("q00", mark) == NO_ROOM
    assert memory.looks.closing() == set()
    memory.forget(head.uid)
    assert memory.why_before("q00", mark) is None


@pytest.mark.parametrize(("guarantee", "let_in"), [(None, []), (200, ["small"])])
def test_a_guarantee_that_appears_counts_in_the_same_second(guarantee: int | None, let_in: list[str]) -> None:
    """What is due is known for a second; another tree of queues is looked at anew at once."""
    specs = {"a": queue(), "b": queue()}
    stage = Stage(specs, nodes=(2,), settings=QueueSettings(patience=10.0, hold=1_000.0))
    for number in range(2):
        stage.submit(f"b{number}", 100, queue="b")
    assert stage.run() == ["b0", "b1"]
    stage.submit("large", 200, queue="a", notes={"gpus": "2"})
    assert stage.run() == []
    assert stage.run(after=20.0) == []
    stage.submit("small", 100, queue="b")
    if guarantee:
        stage.queues.queues_seen(specs | {"b": queue(guarantee=guarantee)})
    stage.end("b0")
    assert stage.run() == let_in


@pytest.mark.parametrize("seen_last", ["head", "own"])
def test_no_node_is_kept_from_whose_guarantee_the_head_waits_for(seen_last: str) -> None:
    """The head can't come in before that one: its node idled for both, for as long as heads may hold others up."""
    part = Quota(guarantee=80_000, limit=120_000)
    specs = {
        "runs": queue(priority=-1),
        "head": queue(guarantee=100, limit=150, weight=2, priority=1, memory=Quota(limit=120_000)),
        # Of memory it asks more than its guarantee: it is not within all of it that it takes.
        "own": queue(limit=150, memory=part, models={"*H100*": ModelQuota(compute=Quota(guarantee=150))}),
        "keeps": queue(guarantee=200, weight=0, lend=0, priority=1),
    }
    settings, h100 = QueueSettings(patience=10.0, hold=900.0), {"gpu-model": "*H100*"}
    stage = Stage(specs, nodes=(2, 1, 4), models={0: H100}, settings=settings)
    stage.submit("runs", 200, 2 * MEMORY, queue="runs", notes=h100)
    assert stage.run() == ["runs"]
    asked = {"head": 120_000, "own": 40_000}
    for uid in sorted(asked, key=lambda one: one == seen_last):
        stage.submit(uid, 150, asked[uid], queue=uid, notes=h100)
        assert stage.run() == []
    for _ in range(3):
        assert stage.run(after=5.0) == []
    stage.end("runs")
    assert stage.run(after=2.0) == ["own"]
    stage.end("own")
    assert stage.run(after=2.0) == ["head"]


@pytest.mark.parametrize(
    "then", [{}, {"a": queue(limit=100)}], ids=["its queue is gone", "it asks more than its limit"]
)
def test_no_node_is_kept_for_a_head_that_can_not_come_in_any_more(then: dict[str, QueueSpec]) -> None:
    """It had lost patience before: its node idled half of the time, for as long as it was there."""
    stage = Stage({"a": queue(), "b": queue()}, nodes=(2,), settings=QueueSettings(patience=10.0, hold=900.0))
    stage.submit("runs", 100, queue="b")
    assert stage.run() == ["runs"]
    stage.submit("head", 200, queue="a")
    for _ in range(2):
        assert stage.run(after=11.0) == []
    stage.submit("small", 100, queue="b")
    assert stage.run(after=1.0) == []
    stage.queues.queues_seen({"b": queue()} | then)
    assert stage.run(after=1.0) == ["small"]
