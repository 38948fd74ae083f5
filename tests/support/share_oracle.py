"""What queues are due, worked out the slow way from their specs: rounds in which all levels rise until one is full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations
from random import Random

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec, Quota

NO_LIMIT = 10**15
Specs = Mapping[str, QueueSpec]


class Oracle:
    """Exact shares of compute."""

    def __init__(
        self,
        specs: Specs,
        demand: Mapping[str, Fraction | int],
        *,
        tops: Mapping[str, Fraction | int] | None = None,
        of_all: Oracle | None = None,
    ) -> None:
        """`demand` is of leaves, and of what pods of queues with children use from before they had any.

        `tops` is what queues may have at the most, whatever they say; of a model, `of_all` has what counts too.
        """
        self.specs = specs
        self.demand = demand
        self._tops = tops or {}
        self._of_all = of_all

    def shares(self, capacity: int) -> dict[str, Fraction]:
        """Every queue's share."""
        own = self.own_parts(capacity)
        found: dict[str, Fraction] = {}

        def look(name: str) -> Fraction:
            found[name] = own[name] + sum(map(look, self._children(name)), Fraction(0))
            return found[name]

        for name in self._children(""):
            look(name)
        return found

    def own_parts(self, capacity: int) -> dict[str, Fraction]:
        """What of its share is due to each one's own pods: of leaves all."""
        found: dict[str, Fraction] = {}
        tops = self._children("")
        self._share_out(tops, min(Fraction(capacity), sum(map(self._most, tops), Fraction(0))), found)
        return found

    def _share_out(self, siblings: Sequence[str], total: Fraction, found: dict[str, Fraction]) -> Fraction:
        """Also how much these have of it, with what they keep idle."""
        levels = dict.fromkeys(siblings, Fraction(0))
        total = self._rise(levels, total, {name: (self._first(name), self._first(name)) for name in siblings})
        for priority in sorted({self.specs[name].priority for name in siblings}, reverse=True):
            total = self._rise(
                levels,
                total,
                {
                    name: (self._weight(name), self._most(name))
                    for name in siblings
                    if self.specs[name].priority == priority
                },
            )
        for name in siblings:
            if children := self._children(name):
                left = levels[name] - self._share_out(children, levels[name], found)
                found[name] = min(Fraction(self.demand.get(name, 0)), left)
            else:
                found[name] = min(levels[name], self._need(name))
        return sum(levels.values(), Fraction(0))

    @staticmethod
    def _rise(
        levels: dict[str, Fraction], total: Fraction, speeds: Mapping[str, tuple[Fraction, Fraction]]
    ) -> Fraction:
        """Raise levels, each by its speed and to its top, until all is gone; what is left."""
        while total > 0:
            rising = [name for name, (speed, top) in speeds.items() if speed and levels[name] < top]
            if not rising:
                break
            together = sum(speeds[name][0] for name in rising)
            step = min(total / together, *((speeds[name][1] - levels[name]) / speeds[name][0] for name in rising))
            for name in rising:
                levels[name] += step * speeds[name][0]
                total -= step * speeds[name][0]
        return total

    def _children(self, name: str) -> list[str]:
        return [other for other, spec in self.specs.items() if spec.parent == name]

    def _guarantee(self, name: str) -> int:
        parent = self.specs[name].parent
        own = self._uncut(name)
        if not parent:
            return own
        above, together = self._guarantee(parent), sum(map(self._uncut, self._children(parent)))
        return own * above // together if together > above else own

    def _uncut(self, name: str) -> int:
        quota = self.specs[name].compute
        own = max(quota.guarantee or 0, sum(map(self._uncut, self._children(name))))
        return own if quota.limit is None else min(own, quota.limit)

    def ceiling(self, name: str) -> Fraction:
        """The most that it may have."""
        quota = self.specs[name].compute
        borrow = 0 if quota.weight == 0 else NO_LIMIT if quota.borrowing_limit is None else quota.borrowing_limit
        most = min(self._guarantee(name) + borrow, NO_LIMIT if quota.limit is None else quota.limit)
        return Fraction(min(most, self._tops.get(name, most)))

    def _need(self, name: str) -> Fraction:
        return min(self.ceiling(name), Fraction(self.demand.get(name, 0)) + sum(map(self._need, self._children(name))))

    def _kept(self, name: str) -> int:
        lend = self.specs[name].compute.lending_limit
        return 0 if lend is None else max(0, self._guarantee(name) - lend)

    def _most(self, name: str) -> Fraction:
        """Need and what nobody else may use, below and here."""
        idle = sum((self._most(child) - self._need(child) for child in self._children(name)), Fraction(0))
        return min(self.ceiling(name), max(self._need(name) + idle, Fraction(self._kept(name))))

    def _first(self, name: str) -> Fraction:
        """What is promised to it and to those below."""
        below = sum(map(self._first, self._children(name)), Fraction(0))
        guarantee = self._guarantee(name)
        if self._of_all:
            guarantee = max(guarantee, self._of_all._guarantee(name))
        return max(min(Fraction(guarantee), self._most(name)), below)

    def _weight(self, name: str) -> Fraction:
        specs = self._of_all.specs if self._of_all else self.specs
        return Fraction(specs[name].compute.weight)


class OfModels:
    """What is there of each model, which kinds of GPUs are of it, and who asks for GPUs of that one alone."""

    def __init__(
        self,
        specs: Specs,
        *,
        there: Mapping[str, int],
        tied: Mapping[str, Mapping[str, int]],
        kinds: Mapping[str, frozenset[int]],
    ) -> None:
        self._specs = specs
        self._there = there
        self._tied = tied
        self._kinds = kinds

    def shares(self, demand: Mapping[str, int], *, capacity: int) -> dict[str, Fraction]:
        """Every queue's share of compute: nobody asks more of a model than is due of it, or has what limits keep."""
        beyond: dict[str, dict[str, Fraction]] = {name: {} for name in demand}
        kept: dict[str, dict[str, Fraction]] = {name: {} for name in self._specs}
        for model in sorted(self._there, key=lambda one: len(self._kinds[one])):
            specs = {name: _of_model(spec, model) for name, spec in self._specs.items()}
            tied = {name: amount - self._most(beyond[name], model) for name, amount in self._tied[model].items()}
            tops = {name: self._there[model] - self._most(parts, model) for name, parts in kept.items()}
            oracle = Oracle(specs, tied, tops=tops, of_all=Oracle(self._specs, demand))
            due = oracle.own_parts(self._there[model])
            for name, parts in beyond.items():
                parts[model] = self._tied[model][name] - due[name]
            for name, parts in kept.items():
                parts[model] = self._there[model] - oracle.ceiling(name)
        left = {name: amount - self._most(beyond[name]) for name, amount in demand.items()}
        tops = {name: capacity - self._most(parts) for name, parts in kept.items()}
        return Oracle(self._specs, left, tops=tops).shares(capacity)

    def _most(self, parts: Mapping[str, Fraction], model: str = "") -> Fraction:
        """The most of all ways to choose models inside one, none of which have a kind of GPU in common."""
        inside = [one for one in parts if not model or self._kinds[one] <= self._kinds[model]]
        ways = chain.from_iterable(combinations(inside, count) for count in range(len(inside) + 1))
        apart = (way for way in ways if len(self._all_kinds(way)) == sum(len(self._kinds[one]) for one in way))
        return max(sum((parts[one] for one in way), Fraction(0)) for way in apart)

    def _all_kinds(self, way: Iterable[str]) -> frozenset[int]:
        return frozenset[int]().union(*(self._kinds[one] for one in way))


def _of_model(spec: QueueSpec, model: str) -> QueueSpec:
    """What a queue says of a model, as if it were all there is."""
    said = spec.models[model].compute if model in spec.models else Quota()
    return msgspec.structs.replace(spec, compute=said)


def random_tree(random: Random) -> tuple[dict[str, QueueSpec], dict[str, int], int]:
    """Queues up to four deep, what is asked, and what there is: often too little, sometimes odd."""
    specs: dict[str, QueueSpec] = {}
    for number in range(random.randint(1, 12)):
        shallow = [name for name in specs if _depth(name, specs) < 4]
        parent = random.choice(["", *shallow])
        specs[f"q{number:02}"] = QueueSpec(parent=parent, compute=_quota(random), priority=random.choice([0, 0, 0, 1]))
    leaves = specs.keys() - {spec.parent for spec in specs.values()}
    demand = {name: random.choice([0, random.randint(0, 99), random.randint(0, 900)]) for name in sorted(leaves)}
    for name in sorted(specs.keys() - leaves):
        if random.random() < 0.2:
            demand[name] = random.randint(0, 400)
    return specs, demand, random.choice([0, 100, random.randint(1, 400), random.randint(1, 3000)])


def _quota(random: Random) -> Quota:
    def maybe(most: int, often: float) -> int | None:
        return random.randint(0, most) if random.random() < often else None

    return Quota(
        guarantee=maybe(300, 0.5),
        limit=maybe(600, 0.3),
        weight=random.choice([0, 1, 1, 1, 2, 3, 7]),
        lending_limit=maybe(200, 0.2),
        borrowing_limit=maybe(300, 0.2),
    )


def _depth(name: str, specs: Specs) -> int:
    depth = 0
    while name:
        depth, name = depth + 1, specs[name].parent
    return depth
