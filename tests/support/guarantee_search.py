"""What guarantees lack, found by trying everything: for a few queues, and amounts that can be counted on fingers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from aliquot_scheduler.queues.said.tree import COMPUTE, ROOT, Tree
from support.guarantee_oracle import Wish, fitting

Given = Sequence[int]


class Search:
    """Whatever could be given to queues, as one number for each that asks and each that keeps something idle."""

    def __init__(self, tree: Tree, *, used: Mapping[str, int], asked: Mapping[str, Sequence[Wish]], free: int) -> None:
        self._tree = tree
        self._asked = asked
        self._names = [name for name in tree.nodes if name != ROOT]
        keepers = [name for name in self._names if tree.nodes[name].kept[COMPUTE]]
        self._takers = [*asked, *keepers]
        self._askers = len(asked)
        self._used = {name: sum(used[one] for one in used if name in tree.path(one)) for name in self._names}
        self._rooms = {
            name: max(0, tree.nodes[name].ceiling[COMPUTE] - in_use) for name, in_use in self._used.items()
        } | {ROOT: free}
        tops = [
            *(sum(one.amount for one in portions) for portions in asked.values()),
            *(tree.nodes[name].kept[COMPUTE] for name in keepers),
        ]
        self._all = list(product(*(range(top + 1) for top in tops)))

    def lacking(self) -> int:
        """The least that serves all that is guaranteed and demanded, less the most of it that there is room for."""
        needs = {name: self._demanded_guarantee(name) for name in self._names}
        enough = [given for given in self._all if all(self._sum(given, name) >= needs[name] for name in needs)]
        least = min(map(sum, enough))
        wanted = [given for given in enough if sum(given) == least]
        possible = [given for given in self._all if self._has_room(given, [*self._names, ROOT])]
        return least - max(sum(given) for given in possible if any(_within(given, one) for one in wanted))

    def _demanded_guarantee(self, name: str) -> int:
        below = [one for one in self._names if name in self._tree.path(one)]
        most = max(
            self._sum(given, name)
            for given in self._all
            if self._has_room(given, below) and all(self._is_kept_so(given, at) for at in self._keepers())
        )
        node, used = self._tree.nodes[name], self._used[name]
        return min(most, fitting(node, self._tree, dimension=COMPUTE, used=self._used, asked=self._asked) - used)

    def _keepers(self) -> range:
        return range(self._askers, len(self._takers))

    def _is_kept_so(self, given: Given, at: int) -> bool:
        """What a queue keeps idle only makes up what it does not use."""
        name = self._takers[at]
        kept = self._tree.nodes[name].kept[COMPUTE]
        return not given[at] or self._used[name] + self._sum(given, name) <= kept

    def _has_room(self, given: Given, names: Sequence[str]) -> bool:
        return all(self._sum(given, name) <= self._rooms[name] for name in names)

    def _sum(self, given: Given, name: str) -> int:
        return sum(amount for amount, one in zip(given, self._takers, strict=True) if name in self._tree.path(one))


def _within(given: Given, most: Given) -> bool:
    return all(one <= other for one, other in zip(given, most, strict=True))
