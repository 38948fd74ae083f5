"""What queues are really guaranteed, and what cuts it: the one rule by which trees are planted and contradictions told.

By hand, first of all GPUs, and of each pattern of models after those that it lies within:

1. From the leaves up a queue is promised what it says or what its children are promised, whichever is more; but no more
   than its own words let be used: by its limit, and by the ceiling that it has of whatever this lies within.
2. From the root down, children who are promised more than their parent is guaranteed are cut in proportion.
3. The ceiling of a queue is its limit, or what it is guaranteed with what it may borrow (of weight 0 nothing), if that
   is less.

So nobody is guaranteed more than its parent, nor more of a model than it may use of all GPUs. Of two patterns that take
the same GPUs each lies within the other: they are worked out twice, first by the limits of those that come later alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aliquot_scheduler.queues.said.dues import is_silent, kept_of
from aliquot_scheduler.queues.said.spec import Quota


class Bound(NamedTuple):
    """What a queue may use at most of one dimension."""

    most: int
    dimension: int
    # By a limit; else by what it may borrow.
    is_limit: bool = True
    # What it is guaranteed there, where it is by that that it may use no more; and whether it says so itself.
    guarantee: int = 0
    is_own: bool = True


class Guarantees:
    """Of all queues, each with its quotas in the order of dimensions."""

    def __init__(
        self,
        *,
        order: Sequence[str],
        children: Mapping[str, Sequence[str]],
        quotas: Mapping[str, Sequence[Quota]],
        within: Sequence[Sequence[int]],
    ) -> None:
        """`order` has parents before their children; `within` is for each dimension those that it lies within."""
        self._order = order
        self._children = children
        self._quotas = quotas
        self._within = within
        self._known: set[int] = set()
        # What each is promised by its own words and those below it; and guaranteed when those above have their say.
        self.promised = {name: [0] * len(within) for name in order}
        self.granted = {name: [0] * len(within) for name in order}
        # By queue and dimension, what lets less be used there than is promised.
        self.broken: dict[tuple[str, int], list[Bound]] = {}
        from_wide_on = sorted(range(len(within)), key=lambda one: len(within[one]))
        mutual = [one for one in from_wide_on if any(one in within[wide] for wide in within[one])]
        for dimension in (*from_wide_on, *mutual):
            self._promise(dimension)
            self._grant(dimension)
            self._known.add(dimension)

    def ceiling(self, name: str, dimension: int) -> int | None:
        """What a queue may use at most of one dimension by its own words; None if nothing bounds it."""
        return min((bound.most for bound in self._bounds(name, dimension)), default=None)

    def below(self, name: str, dimension: int) -> int:
        """What its children are promised together."""
        return sum(self.promised[child][dimension] for child in self._children[name])

    def _promise(self, dimension: int) -> None:
        for name in reversed(self._order):
            promised = max(self._quotas[name][dimension].guarantee or 0, self.below(name, dimension))
            broken = [bound for bound in self._upper_bounds(name, dimension) if bound.most < promised]
            self.broken[name, dimension] = broken
            self.promised[name][dimension] = min([promised, *(bound.most for bound in broken)])

    def _grant(self, dimension: int) -> None:
        for name in self._order:
            self.granted[name][dimension] = self.promised[name][dimension]
        for name in self._order:
            own, below = self.granted[name][dimension], self.below(name, dimension)
            for child in self._children[name] if below > own else ():
                self.granted[child][dimension] = self.granted[child][dimension] * own // below

    def _upper_bounds(self, name: str, dimension: int) -> Iterator[Bound]:
        limit = self._quotas[name][dimension].limit
        if limit is not None:
            yield Bound(limit, dimension)
        for wide in self._within[dimension]:
            yield from self._bounds(name, wide)

    def _bounds(self, name: str, dimension: int) -> Iterator[Bound]:
        quota = self._quotas[name][dimension]
        if quota.limit is not None:
            yield Bound(quota.limit, dimension)
        if dimension not in self._known or (quota.weight and quota.borrowing_limit is None):
            return
        if is_silent(quota) and kept_of(self._quotas[name][dimension ^ 1]):
            # A reservation takes more of this along than is known without the cards; compute and memory are a pair.
            return
        guarantee, more = self.granted[name][dimension], (quota.borrowing_limit or 0) if quota.weight else 0
        is_own = quota.guarantee is not None or not self._children[name]
        yield Bound(guarantee + more, dimension, is_limit=False, guarantee=guarantee, is_own=is_own)
