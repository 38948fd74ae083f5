"""From whom nodes are kept for heads that lost patience, beside the rule as written; and who is looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.judging.rules import Cause, Refusal
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.waiting.line import Candidate, Waiter
from support.queue_stage import Stage, queue
from support.share_oracle import Oracle

NODES, CARDS, MEMORY = 3, 4, 80_000
CAPACITY = (100 * NODES * CARDS, MEMORY * NODES * CARDS)


class Scene:
    """Three levels of queues with weights and priorities, users who hold and wait, and time in which they did."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311 - repeats itself, guards nothing
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
        self.now = self.stage.now + self.chance.choice((0.0, 500.0))
        register = self.stage.queues.register
        register.tell_time(self.now)
        self.books, self.lines = register.books, register.hall.lines
        self.waiting = sorted(self.stage.queues.waiting(), key=lambda one: one.uid)

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
        for waiter in scene.stage.queues.register.inside.bound.values():
            self._count(self._used, waiter)
        for waiter in scene.waiting:
            self._count(self._asked, waiter)
        self._due: list[dict[str, Fraction]] = []
        for dim in (0, 1):
            demand = {name: self._used[name][dim] + self._asked[name][dim] for name in scene.leaves}
            leaves = Oracle(scene.specs, demand).shares(CAPACITY[dim])
            due: dict[str, Fraction] = defaultdict(Fraction)
            for leaf, share in leaves.items():
                for name in scene.way(leaf):
                    due[name] += share
            self._due.append(due)

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
        if specs[theirs].priority > specs[mine].priority:
            return False
        siblings: set[Any] = {
            name
            for name, spec in specs.items()
            if spec.parent == specs[mine].parent and spec.priority <= specs[mine].priority
        }
        lately = {name: self._part(self._scene.books.usage.of(name, now=self._scene.now)) for name in siblings}
        return self._is_within(head, mine, siblings, due=self._due, lately=lately)

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
        of_all = sum(lately[side] for side in siblings if parts[side])
        return lately[mine] * sum(parts.values()) <= parts[mine] * of_all

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
    """Over three levels, weights, priorities and users, for each head and whoever else waits."""
    scene = Scene(seed)
    written, heads = Written(scene), scene.waiting[::3]
    memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
    for head in heads:
        memory.head_refused(head.uid, now=scene.now)
        memory.keep_for(alone(head), (f"kept-for-{head.uid}",))
    # No room is asked for here.
    placing = cast("Placing", None)
    keeping = Keeping(books=scene.books, lines=scene.lines, memory=memory, placing=placing, now=scene.now)
    for other in scene.waiting:
        expected = {f"kept-for-{head.uid}" for head in heads if head is not other and written.is_kept(head, other)}
        assert keeping.kept_from(alone(other)) == expected, (other.uid, other.queue, other.user)


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
        found.append(memory.to_look_at(memory.impatient(now=now), now=now))
        for uid in found[-1]:
            memory.looked_at(heads[uid], NO_ROOM, now=now, closes=False)
    names = sorted(heads)
    assert found == [set(names[:8]), set(names[8:16]), set(names[16:]), set(), set(names[:8]), set(names[8:16])]


def test_what_was_said_of_a_head_is_said_until_it_is_looked_at_again() -> None:
    """Else its condition would be written anew each time that it is looked at, and each time that it is not."""
    memory = SweepMemory(patience=0.0, hold=10_000.0, owed=10_000.0)
    (head,) = heads_of(1, memory=memory)
    mark = head.first.mark
    held_back = Refusal(cause=Cause.HELD_BACK)
    memory.looked_at(head, held_back, now=5.0, closes=True)
    for version in (1, 2, 3):
        memory.begin(version=version)
        memory.end(version=version, broken_off=False, complete=True)
        assert memory.why("q00", mark) == held_back
        assert memory.closing() == {head.uid}
    memory.looked_at(head, NO_ROOM, now=7.0, closes=False)
    assert memory.why("q00", mark) == NO_ROOM
    assert memory.closing() == set()
    memory.forget(head.uid)
    assert memory.why("q00", mark) is None


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
