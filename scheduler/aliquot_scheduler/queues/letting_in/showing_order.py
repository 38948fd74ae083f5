"""Whose pod is shown to a cluster autoscaler next: of the queues that of which least was shown lately, by weight.

From the root down, at each level: the higher priority; the smaller part of all there is that is shown of it now or was
lately, by weight, as usage is counted and forgotten; then as rooms are given. In a queue its users in the same way. So
never shown goes before shown again, whatever shapes and however many pods somebody brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from aliquot_scheduler.queues.charged.ledger import Charge
from aliquot_scheduler.queues.charged.usage import Forgetting, Usage
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, Tree
from aliquot_scheduler.queues.waiting.books import Books
from aliquot_scheduler.queues.waiting.order import Shares, Standing
from aliquot_scheduler.queues.waiting.users import Whose

_BOTH = (COMPUTE, MEMORY)
# Less that was shown lately, in percent and MiB, is as good as nothing.
_FORGOTTEN = 1e-6
_NOTHING = (0, 0)
# It and the root.
_UPPERMOST = 2

# Of a queue by its name, and below it; or of a user in a queue.
_Who = str | Whose
_Sums = dict[_Who, tuple[int, int]]
# A user of a queue, and with what their pod is charged.
Held = tuple[str, Charge]


class ShownLately:
    """How much was shown of each queue and user, from round to round."""

    def __init__(self, *, forgetting: Forgetting) -> None:
        self._usage: Usage[_Who] = Usage(width=len(_BOTH), forgetting=forgetting)
        # By uppermost queue.
        self._held: dict[str, _Sums] = {}

    def holds(self, top: str, held: Iterable[Held], *, tree: Tree, now: float) -> None:
        """These are all whose time runs below an uppermost queue."""
        before, sums = self._held.get(top, {}), _sums(held, tree=tree)
        for who in {who for who, _ in sums.items() ^ before.items()}:
            self._usage.holds(who, sums.get(who, _NOTHING), now=now)
        self._held[top] = sums

    def was_shown(self, held: Held, *, tree: Tree, seconds: float, ago: float, now: float) -> None:
        """Another leader has shown it for so long, until so long ago."""
        for who, amounts in _sums([held], tree=tree).items():
            self._usage.held_for(who, amounts, seconds=seconds, ago=ago, now=now)

    def forget_others(self, *, tree: Tree, now: float) -> None:
        """Queues that are uppermost no more; and whose showings are as good as forgotten."""
        for top in self._held.keys() - {node.name for node in tree.nodes.values() if len(node.path) == _UPPERMOST}:
            self.holds(top, (), tree=tree, now=now)
            del self._held[top]
        self._usage.prune(now=now, least=_FORGOTTEN)

    def of(self, who: _Who, *, now: float) -> Sequence[float]:
        """Lately, and not counting what is shown now."""
        return self._usage.of(who, now=now)


class ShownShares:
    """How much everybody is shown, for one look."""

    def __init__(self, lately: ShownLately, *, books: Books, held: Iterable[Held], now: float) -> None:
        self._lately = lately
        self._books = books
        self._tree = books.ledger.tree
        self._rooms: Shares = books.shares(now=now)
        self._capacity = [max(1, books.capacity[dim]) for dim in _BOTH]
        self._now = now
        self._begins_with = held

    @cached_property
    def _held(self) -> _Sums:
        # Most looks find that no more may be shown, and never ask.
        return _sums(self._begins_with, tree=self._tree)

    def shown(self, held: Held) -> None:
        """One more is."""
        for who, more in _sums([held], tree=self._tree).items():
            before = self._held.get(who, _NOTHING)
            self._held[who] = before[0] + more[0], before[1] + more[1]

    def standing(self, name: str) -> Standing:
        """Of a queue among its siblings: who has the smaller one comes first."""
        priority, _, used, _ = self._rooms.standing(name)
        weight = self._books.ledger.accounts[name].node.weight
        return priority, self._part(name, weight), used, name

    def in_order(self, queue: str, users: Iterable[str]) -> list[str]:
        """These users of a queue, of whom least was shown first."""
        by_rooms = self._rooms.in_order(queue, set(users))
        return sorted(by_rooms, key=lambda user: self._part((queue, user), (1, 1)))

    def _part(self, who: _Who, weight: Sequence[int]) -> float:
        held, lately = self._held.get(who, _NOTHING), self._lately.of(who, now=self._now)
        return max((held[dim] + lately[dim]) / (self._capacity[dim] * (weight[dim] or 1)) for dim in _BOTH)


def _sums(held: Iterable[Held], *, tree: Tree) -> _Sums:
    sums: dict[_Who, list[int]] = {}
    for user, charge in held:
        whose: list[_Who] = [*tree.path(charge.queue)[:-1], (charge.queue, user)]
        for who in whose:
            so_far = sums.setdefault(who, [0, 0])
            for dim in _BOTH:
                so_far[dim] += charge.amounts[dim]
    return {who: (compute, memory) for who, (compute, memory) in sums.items()}
