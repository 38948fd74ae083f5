"""The order of turns, put right step by step, beside the plain ranking of everybody before each turn."""

from __future__ import annotations

import random
from collections import defaultdict, deque

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.waiting.order import Order, within_guarantee
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter, asked_by
from support.order_oracle import FullRanking
from support.queue_stage import Stage, queue

replace = msgspec.structs.replace

CARDS = 16


class Rounds:
    """Pods before a random tree of queues: rounds of turns, some let in and some passed over, and some that end."""

    def __init__(self, *, seed: int, order: type[Order | FullRanking]) -> None:
        self._chance = random.Random(seed)
        self._order = order
        specs = self._specs()
        self._stage = Stage(specs, nodes=(CARDS,))
        self._books = self._stage.queues.books
        self._books.capacity = self._stage.queues.stock().capacity
        parents = {spec.parent for spec in specs.values()}
        self._leaves = [name for name in specs if name not in parents]
        self._lines: dict[str, deque[Waiter]] = defaultdict(deque)
        self._inside: list[str] = []
        self.turns: list[str] = []

    def _specs(self) -> dict[str, QueueSpec]:
        """Up to three levels. Above leaves are no limits: what they make guaranteed is seen only in its turn."""
        specs: dict[str, QueueSpec] = {}
        for number in range(self._chance.randint(2, 14)):
            parents = ["", *(name for name, spec in specs.items() if specs.get(spec.parent, queue()).parent == "")]
            specs[f"q{number:02}"] = queue(
                self._chance.choice(parents),
                guarantee=self._chance.choice((None, None, 100, 200)),
                weight=self._chance.choice((1, 1, 2, 0)),
                priority=self._chance.choice((0, 0, 0, 1)),
            )
        # Who has no weight borrows nothing, which is a limit too.
        above = {spec.parent for spec in specs.values()}
        return {name: _weighty(spec) if name in above else spec for name, spec in specs.items()}

    def submit(self, *, count: int) -> None:
        """Pods join; some ask no memory of their own, so that either dimension may be the larger one."""
        known = {waiter.uid for line in self._lines.values() for waiter in line} | set(self._inside)
        for number in range(count):
            self._stage.submit(
                f"p{len(self.turns)}-{number}-{self._chance.random()}",
                self._chance.choice((10, 30, 50, 100)),
                self._chance.choice((100, 1_000, 40_000)),
                queue=self._chance.choice(self._leaves),
                user=self._chance.choice("uv"),
            )
        for waiter in sorted(self._stage.queues.waiting(), key=lambda one: one.place):
            if waiter.uid not in known and waiter.uid not in self.turns:
                self._lines[waiter.queue].append(waiter)

    def round(self, *, now: float) -> None:
        """Turns until nobody waits; the one whose turn it is is let in, or passed over."""
        shares = self._books.shares(now=now)
        rest = {name: deque(self._alone(waiter) for waiter in line) for name, line in self._lines.items()}
        firsts = {name: lambda line=line: line[0] if line else None for name, line in rest.items()}
        for candidate in self._order(ledger=self._books.ledger, shares=shares, candidates=firsts):
            waiter = candidate.first
            rest[waiter.queue].popleft()
            self.turns.append(waiter.uid)
            # As turns are given: over a ceiling, a let-in would make guarantees of others larger.
            if self._chance.random() < 0.6 and not self._books.ledger.over(waiter.queue, waiter.amounts):
                self._let_in(waiter, now=now)
                shares.changed(waiter.queue)

    def end_some(self, *, now: float) -> None:
        """Some of those that run end."""
        for uid in [uid for uid in self._inside if self._chance.random() < 0.5]:
            self._inside.remove(uid)
            self._books.release(uid)
        self._books.settle(now)

    @staticmethod
    def _alone(waiter: Waiter) -> Candidate:
        return Candidate(members=(waiter,), amounts=waiter.amounts)

    def _let_in(self, waiter: Waiter, *, now: float) -> None:
        self._lines[waiter.queue].remove(waiter)
        self._inside.append(waiter.uid)
        self._books.ledger.ask_no_more(waiter.queue, asked_by((waiter,)))
        self._books.admit(waiter, Charge(queue=waiter.queue, amounts=waiter.amounts), now=now)


def _weighty(spec: QueueSpec) -> QueueSpec:
    compute = replace(spec.compute, weight=max(1, spec.compute.weight))
    return replace(spec, compute=compute)


def turns(seed: int, *, order: type[Order | FullRanking]) -> list[str]:
    """Whose turns come in three rounds, from one seed."""
    rounds = Rounds(seed=seed, order=order)
    for now in (0.0, 3_600.0, 90_000.0):
        rounds.end_some(now=now)
        rounds.submit(count=12)
        rounds.round(now=now)
    return rounds.turns


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_an_order_put_right_step_by_step_is_the_full_ranking(seed: int) -> None:
    """Over random trees, shares, weights, priorities and guarantees, let in or passed over: the same turns."""
    found = turns(seed, order=Order)
    assert len(found) >= 12
    assert found == turns(seed, order=FullRanking)


def test_an_admission_looks_at_few_of_many_siblings() -> None:
    """With 300 queues below one parent a turn moves its own queue, and not all that hang beside it."""
    looked = defaultdict[str, int](int)
    specs = {"top": queue()} | {f"q{number:03}": queue("top") for number in range(300)}
    stage = Stage(specs, nodes=(CARDS,))
    for name in specs.keys() - {"top"}:
        stage.submit(f"{name}-pod", 1, 1, queue=name)
    books = stage.queues.books
    books.capacity = stage.queues.stock().capacity
    waiting = {waiter.queue: Candidate(members=(waiter,), amounts=waiter.amounts) for waiter in stage.queues.waiting()}

    def first(name: str) -> Candidate | None:
        looked[name] += 1
        return waiting.get(name)

    shares = books.shares(now=0.0)
    candidates = {name: lambda name=name: first(name) for name in waiting}
    for candidate in Order(ledger=books.ledger, shares=shares, candidates=candidates):
        waiter = candidate.first
        del waiting[waiter.queue]
        books.admit(waiter, Charge(queue=waiter.queue, amounts=waiter.amounts), now=0.0)
        shares.changed(waiter.queue)
    # Once when its turn comes, once to enter again.
    assert set(looked.values()) == {2}
    assert len(looked) == 300


def test_a_guarantee_above_is_its_children_s_too() -> None:
    """What a parent is guaranteed and a child asks for is the child's to take, though nothing is guaranteed to it."""
    stage = Stage({"o": queue(guarantee=150), "a": queue("o"), "c": queue()}, nodes=(4,))
    for uid in ("a0", "a1", "c0"):
        stage.submit(uid, 100, queue=uid[0])
    waiting = {waiter.uid: waiter for waiter in stage.queues.waiting()}
    for names, within in ((("a0",), True), (("a0", "a1"), False), (("c0",), False)):
        members = tuple(waiting[name] for name in names)
        amounts = tuple(map(sum, zip(*(one.amounts for one in members), strict=True)))
        found = within_guarantee(stage.queues.books.ledger, Candidate(members=members, amounts=amounts))
        assert found is within, names
