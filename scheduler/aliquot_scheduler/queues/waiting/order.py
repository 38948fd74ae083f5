"""Whose candidate is looked at next: guarantees, then who has the smallest share.

From the root down, at each level the sibling goes first that has (1) the higher priority, (2) the smaller share of what
lies beyond guarantees: the larger of compute and memory, each as part of all there is, by weight, what is held now and
what was held lately together; (3) the smaller share of all, (4) the name that comes first. Before all that: whose
candidate lies within a guarantee that is held back for it. In a queue the user goes first who has the smaller share,
of a user's pods the one with the higher priority, then the older one.

Shares only grow while turns are given out, so an order that was right a moment ago is put right as it is used: of each
queue's children the first is looked at, and if its standing is not the same any more it goes back to its new place. An
admission changes the standing of one child at each level, so it costs a step for each level and not one for each queue:
what is above a thousand siblings may change without any of them being moved. Who would fit in a guarantee only now, by
what others have taken of it, is seen in its turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Protocol

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.ledger import Effect, Ledger
from aliquot_scheduler.queues.charged.usage import Usage
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, Tree
from aliquot_scheduler.queues.waiting.user_order import DIGITS
from aliquot_scheduler.queues.waiting.users import Users
from aliquot_scheduler.queues.waiting.waiter import Candidate

Standing = tuple[int, float, float, str]


class Standings(Protocol):
    """Who has how much of what is given out."""

    def standing(self, name: str) -> Standing:
        """Of a queue among its siblings: who has the smaller one comes first."""
        ...


class Shares:
    """How much everybody has of all there is, for one round of turns."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        usage: Usage[str],
        users: Users,
        capacity: Sequence[int],
        now: float,
    ) -> None:
        self._ledger = ledger
        self._usage = usage
        self._users = users
        self._capacity = [max(1, capacity[dimension]) for dimension in (COMPUTE, MEMORY)]
        self._now = now
        self._standings: dict[str, Standing] = {}

    def changed(self, queue: str) -> None:
        """Something was let in there."""
        for name in self._ledger.tree.path(queue):
            self._standings.pop(name, None)

    def standing(self, name: str) -> Standing:
        """Of a queue among its siblings: who has the smaller one comes first."""
        if name not in self._standings:
            account = self._ledger.accounts[name]
            node, lately = account.node, self._usage.of(name, now=self._now)
            beyond = borrowed(account)
            self._standings[name] = (
                -node.priority,
                self._largest(account, [beyond[dim] + lately[dim] for dim in (COMPUTE, MEMORY)]),
                self._largest(account, account.used),
                name,
            )
        return self._standings[name]

    def of_user(self, queue: str, user: str) -> float:
        """A user's share of all there is: held in this queue now, and lately."""
        return self._users.share((queue, user), capacity=self._capacity, now=self._now)

    def in_order(self, queue: str, users: AbstractSet[str]) -> Sequence[str]:
        """These users of a queue, the smallest share first, until this is asked of it again."""
        return self._users.in_order(queue, users, capacity=self._capacity, now=self._now)

    def _largest(self, account: Account, amounts: Sequence[float]) -> float:
        # Who has no weight borrows nothing, so by which number that is divided does not matter.
        weight = account.node.weight
        parts = (amounts[dim] / (self._capacity[dim] * (weight[dim] or 1)) for dim in (COMPUTE, MEMORY))
        return round(max(parts), DIGITS)


def borrowed(account: Account, *, idle: Sequence[int] = (0, 0)) -> tuple[int, int]:
    """What a queue uses beyond what it is due, in compute and memory, with what stands idle for it.

    With what is guaranteed of one goes as much of the other: else a queue that is guaranteed two GPUs' compute would
    have borrowed all their memory.
    """
    used, due = account.used, account.node.due
    compute, memory = (used[dim] + idle[dim] - due[dim] for dim in (COMPUTE, MEMORY))
    return max(0, compute), max(0, memory)


class _Level:
    """Who is next below one queue: its children with candidates, by their standing when they were last looked at."""

    def __init__(self) -> None:
        self._heap: list[tuple[Standing, str]] = []
        self._names: set[str] = set()
        # Nobody asked yet who of these comes first: below a queue whose turn does not come nobody ever does.
        self._new: list[str] = []

    def enter(self, name: str) -> None:
        """A child has a candidate now."""
        if name not in self._names:
            self._names.add(name)
            self._new.append(name)

    def first(self, shares: Standings) -> str | None:
        """Who has the smallest share; who has more than when it was put here goes back to its place."""
        for name in self._new:
            heapq.heappush(self._heap, (shares.standing(name), name))
        self._new.clear()
        while self._heap:
            standing, name = self._heap[0]
            if (now := shares.standing(name)) == standing:
                return name
            heapq.heapreplace(self._heap, (now, name))
        return None

    def drop_first(self) -> None:
        """It has no candidate any more."""
        self._names.remove(heapq.heappop(self._heap)[1])


class _Levels:
    """Queues with candidates, level by level."""

    def __init__(self, *, tree: Tree, shares: Standings) -> None:
        self._tree = tree
        self._shares = shares
        self._below: dict[str, _Level] = {}

    def enter(self, queue: str) -> None:
        """A queue has a candidate now."""
        for name, parent in pairwise(self._tree.path(queue)):
            self._below.setdefault(parent, _Level()).enter(name)

    def take_first(self) -> str | None:
        """The queue whose turn it is; it is out until it enters again."""
        way = [ROOT]
        while level := self._below.get(way[-1]):
            name = level.first(self._shares)
            if name is not None:
                way.append(name)
            elif len(way) == 1:
                return None
            else:
                del self._below[way.pop()]
                self._below[way[-1]].drop_first()
        if len(way) == 1:
            return None
        self._below[way[-2]].drop_first()
        return way[-1]


class Order:
    """One round: every queue's candidates, each until it is let in or passed over."""

    def __init__(
        self, *, ledger: Ledger, shares: Standings, candidates: Mapping[str, Callable[[], Candidate | None]]
    ) -> None:
        self._ledger = ledger
        self._candidates = candidates
        # Who stands for each queue; None where nobody looked yet, since none of it could lie within a guarantee.
        self._entered: dict[str, Candidate | None] = {}
        # Whose candidates lie within guarantees that are held back for them; and the others.
        self._within = _Levels(tree=ledger.tree, shares=shares)
        self._beyond = _Levels(tree=ledger.tree, shares=shares)
        for queue in sorted(candidates):
            held = ledger.held_for(queue)
            if any(held[dim] for dim in ledger.guaranteed(queue)):
                self._enter(queue, candidates[queue]())
            else:
                self._entered[queue] = None
                self._beyond.enter(queue)

    def __iter__(self) -> Iterator[Candidate]:
        """The next candidate; whoever takes it has let it in, or passed it over for good, before asking again."""
        while True:
            levels = self._within
            queue = levels.take_first()
            if queue is None:
                levels = self._beyond
                queue = levels.take_first()
            if queue is None:
                return
            candidate, first = self._entered.pop(queue), self._candidates[queue]()
            # Most are dropped here once the room is gone that somebody left.
            if first is not None and (candidate is None or first is candidate) and self._levels(first) is levels:
                yield first
                first = self._candidates[queue]()
            self._enter(queue, first)

    def _enter(self, queue: str, candidate: Candidate | None) -> None:
        if candidate is not None:
            self._entered[queue] = candidate
            self._levels(candidate).enter(queue)

    def _levels(self, candidate: Candidate) -> _Levels:
        return self._within if within_guarantee(self._ledger, candidate) else self._beyond


def within_guarantee(ledger: Ledger, candidate: Candidate) -> bool:
    """Whether all that it takes of what is guaranteed on its path is held back for it."""
    queue, amounts = candidate.first.queue, candidate.amounts
    guaranteed = [dim for dim in ledger.guaranteed(queue) if amounts[dim]]
    if not guaranteed:
        return False
    # No more can be taken off than there is; most are answered by that.
    held = ledger.held_for(queue)
    if any(held[dim] < amounts[dim] for dim in guaranteed):
        return False
    return all(takes_its_own(ledger.effect(dim, queue, amounts), amounts[dim]) for dim in guaranteed)


def takes_its_own(effect: Effect, amount: int) -> bool:
    """Whether all of an amount is held back for it, by that effect."""
    return effect.lessened >= amount and not effect.injured
