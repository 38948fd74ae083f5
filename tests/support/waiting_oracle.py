"""Whether who waits though all others have ended waits rightly: by the sentences of docs/queues.md, not by the core's.

Of what is written only the planted tree is taken (its ceilings, what is due and kept); whether those who start together
could come in is found by trying each model for each of them: nobody else is there, so whatever fits must be let in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product

import msgspec

from aliquot_core.inventory import Gpu
from aliquot_scheduler.queues.said.tree import ROOT, Tree
from aliquot_scheduler.queues.waiting.waiter import Waiter
from support.guarantee_oracle import Guarantees, Wish
from support.lying_oracle import can_lie

Amounts = Sequence[int]
# Which model each of them lies on.
Models = Sequence[str]


class Emptied(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster in which nobody is."""

    tree: Tree
    capacity: Amounts
    nodes: Sequence[Sequence[Gpu]]

    def has_room(self, start: Sequence[Waiter]) -> bool:
        """Whether these could come in together, whatever models they lie on."""
        queue = start[0].queue
        if self.tree.leaf(queue) is None or self.tree.nodes[queue].stop:
            return False
        there = sorted({gpu.model for cards in self.nodes for gpu in cards})
        return any(self._has_room(start, models) for models in product(there, repeat=len(start)))

    def _has_room(self, start: Sequence[Waiter], models: Models) -> bool:
        amounts, queue = self._amounts(start, models), start[0].queue
        held = [(one, model) for one, model in zip(start, models, strict=True) if one.shape.firm]
        firm = self._amounts([one for one, _ in held], [model for _, model in held])
        return (
            self._is_within_limits(queue, amounts)
            and self._is_for_good(queue, firm)
            and not self._is_kept(queue, amounts)
            and can_lie(start, nodes=self.nodes, models=models)
        )

    def _amounts(self, start: Sequence[Waiter], models: Models) -> list[int]:
        """By dimension, what they come to: a card counts for all patterns that take its model."""
        found = [0] * self.tree.dimensions.cards
        for dim in range(len(found)):
            pattern = self.tree.dimensions.model_of(dim) or "*"
            for one, model in zip(start, models, strict=True):
                if fnmatchcase(model.casefold(), pattern.casefold()):
                    found[dim] += one.amounts[dim % 2]
        return found

    def _is_within_limits(self, queue: str, amounts: Amounts) -> bool:
        nodes = [self.tree.nodes[name] for name in self.tree.path(queue)]
        return all(amount <= node.ceiling[dim] for node in nodes for dim, amount in enumerate(amounts))

    def _is_for_good(self, queue: str, firm: Amounts) -> bool:
        """No more than is due there; and no more is sure then anywhere than there can be."""
        for dim, amount in enumerate(firm):
            if amount > self.tree.nodes[queue].due[dim]:
                return False
            without, with_it = (
                {name: self._sure(name, dim, given={queue: most}) for name in self.tree.nodes} for most in (0, amount)
            )
            for name, node in self.tree.nodes.items():
                most = self.capacity[dim] if name == ROOT else node.ceiling[dim]
                if without[name] < with_it[name] > most:
                    return False
        return True

    def _sure(self, name: str, dim: int, *, given: Mapping[str, int]) -> int:
        """What is guaranteed there or given for good, whichever is more, there or below."""
        node = self.tree.nodes[name]
        below = sum(self._sure(child, dim, given=given) for child in node.children)
        return max(node.guarantee[dim], given.get(name, 0) + below)

    def _is_kept(self, queue: str, amounts: Amounts) -> bool:
        """Whether what it takes is others' and never lent, though nobody asks."""
        for dim, amount in enumerate(amounts):
            there, wish = self.capacity[dim], Wish(amount, frozenset(self.tree.path(queue)))
            asks = Guarantees(self.tree, dimension=dim, used={}, asked={queue: [wish]}, free=there)
            has = Guarantees(self.tree, dimension=dim, used={queue: amount}, asked={}, free=there - amount)
            if has.lacking() > asks.lacking() or has.unasked().lacking() > asks.unasked().lacking():
                return True
        return False
