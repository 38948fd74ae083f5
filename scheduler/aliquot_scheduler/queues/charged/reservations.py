"""What queues keep idle (`lendingLimit`), apart from what is held back for those who ask.

A guarantee that is asked for is held back from whoever borrows, and of two that are asked for either may be served
first. What is kept idle is more than that: it is nobody else's, whatever they are guaranteed. So it is counted apart.

**Kept idle** of a queue, in each dimension of GPUs, is what it keeps of its guarantee less what it uses, and no less
than what is kept idle below it; above, it counts as far as its ceiling still lets it be used.

**An admission leaves it alone** if at every queue on its way up, and for all queues together, the room that is left is
no less than what is kept idle then, or if what is kept idle there sinks by all that it takes: then it is the queue's
own. The room of a queue is what its ceiling leaves; of all together, what is free. Where more is kept than there is,
nobody else gets anything.

What must always hold: all numbers are those that counting anew would give. O(depth) for each charge; a dimension of
which nothing is kept costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.said.tree import ROOT


class _Level(NamedTuple):
    """One queue on the way up: what is kept idle there, before an admission and after it, and what changes below."""

    account: Account
    before: int
    after: int
    below: int


class Reservations:
    """Of all queues."""

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self._accounts = accounts
        kept = (dim for account in accounts.values() for dim, most in enumerate(account.node.kept) if most)
        self._dimensions = frozenset(kept)
        for account in accounts.values():
            for dimension in self._dimensions:
                self.changed([accounts[name] for name in account.node.path], dimension)

    def changed(self, path: Sequence[Account], dimension: int) -> None:
        """These queues, from one up to the root, use more or less than they did."""
        if dimension not in self._dimensions:
            return
        change = 0
        for account in path:
            account.idle_below[dimension] += change
            idle = min(_kept(account, dimension), _room(account, dimension))
            change, account.idle[dimension] = idle - account.idle[dimension], idle

    def taken_by(self, path: Sequence[Account], dimension: int, amount: int, *, free: int) -> str | None:
        """Under which queue so much more in the first of these would take of what is kept idle; None if nowhere."""
        if dimension not in self._dimensions:
            return None
        for account, before, after, _ in _followed(path, dimension, amount):
            left = (free if account.node.name == ROOT else _room(account, dimension)) - amount
            if after > max(0, left) and before - after < amount:
                return account.node.name
        return None

    def beside(self, path: Sequence[Account], dimension: int, amount: int, *, at: str) -> int:
        """How much would be kept idle `at` a queue on the way up, with so much more in the first."""
        if dimension not in self._dimensions:
            return 0
        return next(one.after for one in _followed(path, dimension, amount) if one.account.node.name == at)

    def lessened_below(self, path: Sequence[Account], dimension: int, amount: int) -> Sequence[int]:
        """By how much what is kept idle below each of these would change with so much more in the first."""
        if dimension not in self._dimensions:
            return (0,) * len(path)
        return [level.below for level in _followed(path, dimension, amount)]

    def keepers(self, queue: str, dimension: int) -> dict[str, int]:
        """Who keeps something idle at a queue or below it: each with its own part."""
        below = [account for account in self._accounts.values() if queue in account.node.path]
        own = {account.node.name: account.idle[dimension] - account.idle_below[dimension] for account in below}
        return {name: kept for name, kept in own.items() if kept > 0 and name != ROOT}


def _kept(account: Account, dimension: int, *, more: int = 0, below: int = 0) -> int:
    """What is kept idle at a queue, whatever its ceiling leaves; or with so much more in use, and kept idle below."""
    own = account.node.kept[dimension] - account.used[dimension] - more
    return max(own, account.idle_below[dimension] + below, 0)


def _room(account: Account, dimension: int, *, more: int = 0) -> int:
    return max(0, account.node.ceiling[dimension] - account.used[dimension] - more)


def _followed(path: Sequence[Account], dimension: int, amount: int) -> Iterator[_Level]:
    change = 0
    for account in path:
        after = _kept(account, dimension, more=amount, below=change)
        yield _Level(account, _kept(account, dimension), after, change)
        change = min(after, _room(account, dimension, more=amount)) - account.idle[dimension]
