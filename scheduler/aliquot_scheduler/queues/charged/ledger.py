"""What each queue uses, has promised and is asked for: counted at the queue and at each above it.

A pod is charged when it is admitted, with the most that it may come to (memory left out: its part of the largest card
that it may lie on), and again when it is bound, with what it was granted. What waits is counted too, because a
guarantee is held back only for those who ask for it.

**Demanded** of a queue, in each dimension of GPUs: what is asked there and below by those whom limits let in
(`askers.py`), and what is kept there even when idle, as far as the ceilings there and below still let it be used.

**Missing** of a queue: what is missing of its guarantee as far as that is demanded by those who would fit in it as a
whole (`portions.py`), with what is kept idle below it; no less than what it keeps idle itself, and than what is held
back of its children. **Held back** is as much of that as its ceiling still lets it use: what others have taken under
the ceiling, only they can give back.

**An admission is just** in a dimension if at every queue on its way up, and for all queues together, the room that is
left beyond what is missing does not sink below zero by it, or does not sink at all: then it takes what nobody is
promised, or what is missing for itself. The room of a queue is what its ceiling leaves; of all together, what is free.
It is not enough to look at what is free: under a parent's ceiling, who borrows takes what serves a guarantee there.
What is kept idle is no other guarantee's either (`reservations.py`).

**For good** no more is given than can stay so (`for_good.py`).

What must always hold: nobody's charge takes a queue, or one above it, over its ceiling (`fits` is asked before
`charge`); a holder is charged once; all numbers are those that counting anew would give. O(depth) per event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import add
from typing import NamedTuple

import msgspec

from aliquot_scheduler.queues.charged.account import Account, holding
from aliquot_scheduler.queues.charged.askers import Ask, Askers
from aliquot_scheduler.queues.charged.ceilings import crowded, over, takes
from aliquot_scheduler.queues.charged.for_good import make_sure, make_sure_of_guarantees, unsure
from aliquot_scheduler.queues.charged.held_back import HeldBack
from aliquot_scheduler.queues.charged.reservations import Reservations
from aliquot_scheduler.queues.said.tree import ROOT, UNLIMITED, Tree, Vector


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


class Ledger:
    """All queues' numbers."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.width = len(tree.dimensions)
        self._cards = tree.dimensions.cards
        self._of_models = range(2, self._cards)
        self.accounts = {name: Account(node, width=self.width) for name, node in tree.nodes.items()}
        self.reservations = Reservations(self.accounts)
        self._askers = Askers(self.accounts, cards=self._cards)
        self._charges: dict[str, Charge] = {}
        self._guaranteed: dict[str, tuple[int, ...]] = {}
        self._limits_models: dict[str, bool] = {}
        # A queue's accounts up to the root: an event asks for each of 200 a few times.
        self._paths: dict[str, list[Account]] = {}
        make_sure_of_guarantees(self.accounts)
        self._held_back = HeldBack(self.accounts, cards=self._cards)
        self._held_back.count_all()

    # --- events ------------------------------------------------------------------------------------------------------
    def charge(self, holder: str, charge: Charge) -> None:
        """Charge a holder with exactly this, instead of what it was charged with before."""
        # To take it back first would count all anew twice, at each binding.
        if self._charges.get(holder) == charge:
            return
        self.release(holder)
        self._charges[holder] = charge
        self._move(charge, +1)

    def release(self, holder: str) -> None:
        """Charge a holder with nothing."""
        if charge := self._charges.pop(holder, None):
            self._move(charge, -1)

    def charge_all(self, charges: Mapping[str, Charge]) -> None:
        """Charge these holders, none of whom is charged yet: at once for each queue, for there are thousands."""
        sums: dict[tuple[str, bool], list[int]] = {}
        for charge in charges.values():
            so_far = sums.setdefault((charge.queue, charge.firm), [0] * self.width)
            so_far[:] = map(add, so_far, charge.amounts)
        self._charges.update(charges)
        for (queue, firm), amounts in sums.items():
            self._move(Charge(queue=queue, amounts=tuple(amounts), firm=firm), +1)

    def ask_all(self, asks: Mapping[tuple[str, Ask], int]) -> None:
        """So many ask each of these: what is held back is counted once, when all are there."""
        for (queue, ask), times in asks.items():
            self._count(self._path(queue), ask, sign=times)
        self._held_back.count_all()

    def ask(self, queue: str, ask: Ask) -> None:
        """So much that could be let in, all at once, waits in the queue."""
        self._ask(queue, ask, sign=+1)

    def ask_no_more(self, queue: str, ask: Ask) -> None:
        """It does not any more."""
        self._ask(queue, ask, sign=-1)

    def set_apart(self, charges: Iterable[Charge], asks: Iterable[tuple[str, Ask]], *, back: bool = False) -> None:
        """So much more is charged, to no holder, and asked no more by those; `back`: all of that is as it was again.

        What is held back is counted once for each charge, so a hundred pods of twenty queues cost little.
        """
        sign = -1 if back else +1
        for queue, ask in asks:
            self._count(self._path(queue), ask, sign=-sign)
        for charge in charges:
            self._move(charge, sign)

    # --- questions ---------------------------------------------------------------------------------------------------
    def of(self, holder: str) -> Charge | None:
        """What a holder is charged with."""
        return self._charges.get(holder)

    def charges(self) -> Mapping[str, Charge]:
        """All charges, by holder."""
        return self._charges

    def over(self, queue: str, amounts: Sequence[int]) -> tuple[Account, int] | None:
        """Where, and in which dimension, so much more would be over a ceiling; None if nowhere."""
        return over(self._path(queue), amounts)

    def is_limited(self, queue: str, amounts: Sequence[int]) -> bool:
        """Whether any limit counts for who asks so much there."""
        asked = [dim for dim, amount in enumerate(amounts) if amount]
        return any(account.node.ceiling[dim] < UNLIMITED for account in self._path(queue) for dim in asked)

    def limits_models(self, queue: str) -> bool:
        """Whether any limit of GPUs of a model counts there."""
        if queue not in self._limits_models:
            path = self._path(queue)
            limits = (account.node.ceiling[dim] for account in path for dim in self._of_models)
            self._limits_models[queue] = any(limit < UNLIMITED for limit in limits)
        return self._limits_models[queue]

    def crowds(
        self, queue: str, amounts: Sequence[int], *, by: Sequence[int], of: Collection[str]
    ) -> tuple[str, int] | None:
        """Where so much would not be left any more under a limit, and of what, if others `of` that path took `by`."""
        return crowded(self._path(queue), amounts, by=by, of=of)

    def takes_all(self, charges: Iterable[Charge]) -> bool:
        """Whether all of these, who ask now, are under every ceiling together, and take nothing there that is others'.

        Not if anything is missing under one of them, as what is kept idle is: by each that is charged that only
        shrinks, so who would take of it need not be asked one by one where there is nothing.
        """
        more: dict[str, list[int]] = {}
        for charge in charges:
            for account in self._path(charge.queue):
                so_far = more.setdefault(account.node.name, [0] * self.width)
                so_far[:] = map(add, so_far, charge.amounts)
        return all(takes(self.accounts[name], amounts, cards=self._cards) for name, amounts in more.items())

    def unsure(self, queue: str, amounts: Sequence[int], *, capacity: Sequence[int]) -> tuple[str, int] | None:
        """Where, and in which dimension, so much more can't be given for good: in the queue itself, or above it."""
        return unsure(self._path(queue), amounts[: self._cards], capacity=capacity)

    def effect(self, dimension: int, queue: str, amounts: Sequence[int]) -> Effect:
        """What it would do to what is held back, if a pod that asks so much there were admitted: followed upwards."""
        amount, injured, path = amounts[dimension], "", self._path(queue)
        less_wanted, change = min(amount, path[0].wanted[dimension]), 0
        but = amount if less_wanted == amount else 0
        for account, idle in zip(path, self.reservations.lessened_below(path, dimension, amount), strict=True):
            if account.node.name == ROOT:
                break
            wanted = account.wanted[dimension] - less_wanted
            after = holding(account, dimension, more=amount, wanted=wanted, below=change, idle=idle, but=but)
            if after.missing > after.room and account.missing[dimension] - after.missing < amount:
                injured = account.node.name
            less_wanted = account.demanded[dimension] - after.demanded
            change = after.held - account.held[dimension]
        return Effect(lessened=-change, injured=injured)

    def taken_of_idle(self, dimension: int, queue: str, amounts: Sequence[int], *, free: int) -> str | None:
        """Under which queue so much more would take of what others keep idle, `free` of all being left; or None."""
        return self.reservations.taken_by(self._path(queue), dimension, amounts[dimension], free=free)

    def kept_idle(self, dimension: int, queue: str, amounts: Sequence[int], *, at: str) -> int:
        """How much would still be kept idle `at` a queue above with so much more in this one."""
        return self.reservations.beside(self._path(queue), dimension, amounts[dimension], at=at)

    def guaranteed(self, queue: str) -> tuple[int, ...]:
        """In which dimensions the queue, or one above it, is guaranteed anything."""
        if queue not in self._guaranteed:
            nodes = [account.node for account in self._path(queue) if account.node.name != ROOT]
            dimensions = range(self._cards)
            self._guaranteed[queue] = tuple(dim for dim in dimensions if any(node.guarantee[dim] for node in nodes))
        return self._guaranteed[queue]

    def held_for(self, queue: str) -> Sequence[int]:
        """What is held back of the queue's uppermost ancestor: an admission below lessens it by no more."""
        path = self._path(queue)
        return path[-2].held if len(path) > 1 else (0,) * self.width

    def held_back(self, dimension: int) -> int:
        """What is held back of all queues together."""
        return self.accounts[ROOT].held_below[dimension]

    # --- how it is counted -------------------------------------------------------------------------------------------
    def _path(self, queue: str) -> list[Account]:
        if queue not in self._paths:
            self._paths[queue] = [self.accounts[name] for name in self.tree.path(queue)]
        return self._paths[queue]

    def _ask(self, queue: str, ask: Ask, *, sign: int) -> None:
        path = self._path(queue)
        if self._count(path, ask, sign=sign):
            self._held_back.count_along(path, _asked(ask.amounts))

    def _count(self, path: Sequence[Account], ask: Ask, *, sign: int) -> bool:
        """Count who asks so; whether what is held back is to be counted anew for it."""
        for dimension, amount in enumerate(ask.amounts):
            if amount:
                for account in path:
                    account.asked[dimension] += sign * amount
        if ask.awaits_node:
            path[0].awaiting[:] = [
                so_far + sign * amount for so_far, amount in zip(path[0].awaiting, ask.amounts, strict=True)
            ]
        else:
            for dimension in self._of_models:
                path[0].tied[dimension] += sign * ask.least[dimension]
        counts = self._askers.add(path[0].node.name, ask, times=sign)
        self._demand(path[:counts], ask.amounts, times=sign)
        if counts:
            self._want(path, ask.amounts, times=sign)
        return bool(counts)

    def _demand(self, path: Sequence[Account], amounts: Sequence[int], *, times: int) -> None:
        """So many more who ask so much count for these, or fewer."""
        for dimension, amount in enumerate(amounts):
            for account in path if amount else ():
                if (portions := account.portions[dimension]) is not None:
                    portions.add(amount, times=times)

    def _want(self, path: Sequence[Account], amounts: Sequence[int], *, times: int) -> None:
        """So many more who ask so much count at all; what is held back is to be counted anew."""
        for dimension, amount in enumerate(amounts):
            path[0].wanted[dimension] += times * amount

    def _move(self, charge: Charge, sign: int) -> None:
        path, amounts = self._path(charge.queue), [sign * amount for amount in charge.amounts]
        for dimension, amount in enumerate(amounts):
            if amount:
                for account in path:
                    account.used[dimension] += amount
                self.reservations.changed(path, dimension)
                self._held_back.count_along(path, (dimension,))
        if charge.firm:
            make_sure(path, amounts)
        touched: dict[str, set[int]] = {}
        for queue, ask, times, was, now in self._askers.changed(path[0].node.name, amounts, firm=charge.firm):
            way = self._path(queue)
            self._demand(way[min(was, now) : max(was, now)], ask.amounts, times=times if now > was else -times)
            self._want(way, ask.amounts, times=times * (bool(now) - bool(was)))
            touched.setdefault(queue, set()).update(_asked(ask.amounts))
        # Under a limit hundreds may count otherwise at once: what is held back is counted once for all of a queue.
        for queue, dimensions in touched.items():
            self._held_back.count_along(self._path(queue), dimensions)


def _asked(amounts: Sequence[int]) -> list[int]:
    """In which dimensions anything is."""
    return [dim for dim, amount in enumerate(amounts) if amount]
