"""What each queue uses, has promised and is asked for: counted at the queue and at each above it.

A pod is charged when it is admitted, with the most that it may come to (memory left out: its part of the largest card
that it may lie on), and again when it is bound, with what it was granted. What waits is counted too, because a
guarantee is held back only for those who ask for it.

**Demanded** of a queue, in each dimension of GPUs: what is asked there and below, and what is kept there even when
idle, as far as the ceilings there and below still let it be used.

**Missing** of a queue: what is missing of its guarantee as far as that is demanded by those who would fit in it as a
whole (`portions.py`), and no less than what is held back of its children. **Held back** is as much of that as its
ceiling still lets it use: what others have taken under the ceiling, only they can give back. Where something is kept
idle, at the queue or below it, a guarantee is looked at as if all that is asked could be let in piece by piece.

**An admission is just** in a dimension if at every queue on its way up, and for all queues together, the room that is
left beyond what is missing does not sink below zero by it, or does not sink at all: then it takes what nobody is
promised, or what is missing for itself. The room of a queue is what its ceiling leaves; of all together, what is free.
It is not enough to look at what is free: under a parent's ceiling, who borrows takes what serves a guarantee there.

What must always hold: nobody's charge takes a queue, or one above it, over its ceiling (`fits` is asked before
`charge`); a holder is charged once; all numbers are those that counting anew would give. O(depth) per event.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import msgspec

from aliquot_scheduler.queues.portions import Portions
from aliquot_scheduler.queues.tree import COMPUTE, ROOT, Node, Tree, Vector


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What one holder is charged with, where; `firm` means that it is never taken back for others."""

    queue: str
    amounts: Vector
    firm: bool = False


class Effect(NamedTuple):
    """What an admission would do to what is held back, in one dimension."""

    # By how much less would be held back of all.
    lessened: int
    # The queue under whose ceiling it would take what is missing for others; empty if there is none.
    injured: str


class Account:
    """The numbers of one queue."""

    __slots__ = ("asked", "demanded", "firm", "held", "held_below", "missing", "node", "portions", "used", "wanted")

    def __init__(self, node: Node, *, width: int, whole: Container[int]) -> None:
        """`whole` is in which dimensions its guarantee serves only what fits in it as a whole."""
        self.node = node
        self.portions = tuple(Portions() if dim in whole else None for dim in range(width))
        self.used = [0] * width
        self.firm = [0] * width
        self.asked = [0] * width
        # What is asked here and demanded of the children; and what is demanded here.
        self.wanted = [0] * width
        self.demanded = [0] * width
        self.missing = [0] * width
        self.held = [0] * width
        # The sum of the children's.
        self.held_below = [0] * width


class Ledger:
    """All queues' numbers."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.width = len(tree.dimensions)
        self._cards = tree.dimensions.cards
        whole = _whole(tree)
        self.accounts = {name: Account(node, width=self.width, whole=whole[name]) for name, node in tree.nodes.items()}
        self._charges: dict[str, Charge] = {}
        self._guaranteed: dict[str, tuple[int, ...]] = {}
        # A queue's accounts up to the root: an event asks for each of 200 a few times.
        self._paths: dict[str, list[Account]] = {}
        # From below: what is held back of a queue counts what is held back of those below it.
        for account in sorted(self.accounts.values(), key=lambda account: -len(account.node.path)):
            for dimension in range(self._cards):
                self._hold(account, dimension)

    # --- events ------------------------------------------------------------------------------------------------------
    def charge(self, holder: str, charge: Charge) -> None:
        """Charge a holder with exactly this, instead of what it was charged with before."""
        self.release(holder)
        self._charges[holder] = charge
        self._move(charge, +1)

    def release(self, holder: str) -> None:
        """Charge a holder with nothing."""
        if charge := self._charges.pop(holder, None):
            self._move(charge, -1)

    def ask(self, queue: str, amounts: Sequence[int]) -> None:
        """So much that could be let in, all at once, waits in the queue."""
        self._ask(queue, amounts, sign=+1)

    def ask_no_more(self, queue: str, amounts: Sequence[int]) -> None:
        """It does not any more."""
        self._ask(queue, amounts, sign=-1)

    # --- questions ---------------------------------------------------------------------------------------------------
    def of(self, holder: str) -> Charge | None:
        """What a holder is charged with."""
        return self._charges.get(holder)

    def charges(self) -> Mapping[str, Charge]:
        """All charges, by holder."""
        return self._charges

    def over(self, queue: str, amounts: Sequence[int]) -> tuple[Account, int] | None:
        """Where, and in which dimension, so much more would be over a ceiling; None if nowhere."""
        for account in self._path(queue):
            ceiling, used = account.node.ceiling, account.used
            for dimension, amount in enumerate(amounts):
                if amount and used[dimension] + amount > ceiling[dimension]:
                    return account, dimension
        return None

    def never(self, queue: str, amounts: Sequence[int], *, firm: bool) -> tuple[Account, int] | None:
        """The same if nothing were used at all; a pod that asks so much would wait for ever."""
        path = self._path(queue)
        for account in path:
            for dimension, amount in enumerate(amounts):
                if amount > account.node.ceiling[dimension]:
                    return account, dimension
        broken = self._beyond(path[0].node, (0,) * self.width, amounts) if firm else None
        return None if broken is None else (path[0], broken)

    def unsure(self, queue: str, amounts: Sequence[int]) -> int | None:
        """In which dimension so much more, never to be taken back, is beyond the queue's own guarantee."""
        account = self._path(queue)[0]
        return self._beyond(account.node, account.firm, amounts)

    def effect(self, dimension: int, queue: str, amounts: Sequence[int]) -> Effect:
        """What it would do to what is held back, if a pod that asks so much there were admitted: followed upwards."""
        amount, injured, path = amounts[dimension], "", self._path(queue)
        less_wanted, change = min(amount, path[0].wanted[dimension]), 0
        but = amount if less_wanted == amount else 0
        for account in path:
            if account.node.name == ROOT:
                break
            wanted = account.wanted[dimension] - less_wanted
            after = _holding(account, dimension, more=amount, wanted=wanted, below=change, but=but)
            if after.missing > after.room and account.missing[dimension] - after.missing < amount:
                injured = account.node.name
            less_wanted = account.demanded[dimension] - after.demanded
            change = after.held - account.held[dimension]
        return Effect(lessened=-change, injured=injured)

    def guaranteed(self, queue: str) -> tuple[int, ...]:
        """In which dimensions the queue, or one above it, is guaranteed anything."""
        if queue not in self._guaranteed:
            nodes = [account.node for account in self._path(queue) if account.node.name != ROOT]
            dimensions = range(self._cards)
            self._guaranteed[queue] = tuple(dim for dim in dimensions if any(node.guarantee[dim] for node in nodes))
        return self._guaranteed[queue]

    def held_for(self, dimension: int, queue: str) -> int:
        """What is held back of the queue's uppermost ancestor: an admission below lessens it by no more."""
        path = self._path(queue)
        return path[-2].held[dimension] if len(path) > 1 else 0

    def held_back(self, dimension: int) -> int:
        """What is held back of all queues together."""
        return self.accounts[ROOT].held_below[dimension]

    # --- how it is counted -------------------------------------------------------------------------------------------
    @staticmethod
    def _beyond(node: Node, firm: Sequence[int], amounts: Sequence[int]) -> int | None:
        """What the guarantee says nothing of does not count; a queue without any has nothing to be firm in."""
        if not node.promised:
            return COMPUTE
        return next((dim for dim in node.promised if firm[dim] + amounts[dim] > node.guarantee[dim]), None)

    def _path(self, queue: str) -> list[Account]:
        if queue not in self._paths:
            self._paths[queue] = [self.accounts[name] for name in self.tree.path(queue)]
        return self._paths[queue]

    def _ask(self, queue: str, amounts: Sequence[int], *, sign: int) -> None:
        path = self._path(queue)
        for dimension, amount in enumerate(amounts):
            if amount:
                path[0].wanted[dimension] += sign * amount
                for account in path:
                    account.asked[dimension] += sign * amount
                    if (portions := account.portions[dimension]) is not None:
                        portions.add(amount, times=sign)
                    self._hold(account, dimension)

    def _move(self, charge: Charge, sign: int) -> None:
        for account in self._path(charge.queue):
            for dimension, amount in enumerate(charge.amounts):
                if amount:
                    account.used[dimension] += sign * amount
                    if charge.firm:
                        account.firm[dimension] += sign * amount
                    self._hold(account, dimension)

    def _hold(self, account: Account, dimension: int) -> None:
        """Count anew what is held back of one queue, and pass the differences on to its parent."""
        if dimension >= self._cards or account.node.name == ROOT:
            return
        now = _holding(account, dimension)
        parent = self.accounts[account.node.path[1]]
        parent.wanted[dimension] += now.demanded - account.demanded[dimension]
        parent.held_below[dimension] += now.held - account.held[dimension]
        account.demanded[dimension], account.held[dimension] = now.demanded, now.held
        account.missing[dimension] = now.missing


class _Holding(NamedTuple):
    room: int
    demanded: int
    missing: int
    held: int


def _holding(
    account: Account, dimension: int, *, more: int = 0, wanted: int | None = None, below: int = 0, but: int = 0
) -> _Holding:
    """One queue's numbers; or what they would be with so much more in use and held back below, and one less asking."""
    node, used, portions = account.node, account.used[dimension] + more, account.portions[dimension]
    room = max(0, node.ceiling[dimension] - used)
    wanted = account.wanted[dimension] if wanted is None else wanted
    demanded = min(max(wanted, node.kept[dimension] - used), room)
    lacks = min(node.guarantee[dimension] - used, demanded)
    if portions is not None and lacks > 0:
        lacks = min(lacks, portions.fitting(node.guarantee[dimension] - used, but=but))
    missing = max(lacks, account.held_below[dimension] + below, 0)
    # By position: names would double what it takes, and it is asked 1,000 times for each card that is given back.
    return _Holding(room, demanded, missing, min(missing, room))


def _whole(tree: Tree) -> dict[str, set[int]]:
    """In which dimensions each queue is guaranteed something, and nothing is kept idle there or below."""
    found = {name: {dim for dim, due in enumerate(node.guarantee) if due} for name, node in tree.nodes.items()}
    for node in tree.nodes.values():
        for name in node.path:
            found[name] -= {dim for dim, kept in enumerate(node.kept) if kept}
    return found
