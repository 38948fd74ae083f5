"""What a pod is told of a refusal, with numbers: what is asked, what its queue has, what the cards have, who is first.

The same words stand in a waiting pod's condition and in `aliquot explain`. They are to be read in a terminal, so of
many names three are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot_core.counting import agreed, counted
from aliquot_core.membership import Topology
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.asking import asked_of
from aliquot_scheduler.queues.judging.cards import NOBODY_AWAY, Away, Stock
from aliquot_scheduler.queues.judging.rules import Cause, Refusal
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT
from aliquot_scheduler.queues.said.units import bare, of_whom, slices, spoken
from aliquot_scheduler.queues.telling.named import told_of
from aliquot_scheduler.queues.waiting.waiter import Waiter, summed

_TOGETHER = {
    Topology.ANY: "room for all of them at once",
    Topology.NODE: "room for all of them on one node",
    Topology.NVLINK: "room for all of them on GPUs that NVLinks join",
    Topology.SPREAD: "room for each of them on a node of its own",
}


class Promised(msgspec.Struct, frozen=True, kw_only=True):
    """Of all GPUs what is kept for pods that were let in and are not bound yet, and how many they are."""

    amounts: tuple[int, int] = (0, 0)
    pods: int = 0

    @classmethod
    def of(cls, waiters: Iterable[Waiter], *, ledger: Ledger) -> Promised:
        """By what they are charged with."""
        held = [charge.amounts for waiter in waiters if (charge := ledger.of(waiter.uid))]
        return cls(amounts=(sum(one[COMPUTE] for one in held), sum(one[MEMORY] for one in held)), pods=len(held))


NOTHING = Promised()


class Wording:
    """Sentences by the numbers of one instant."""

    def __init__(self, *, ledger: Ledger, stock: Stock, promised: Promised = NOTHING, away: Away = NOBODY_AWAY) -> None:
        self._ledger = ledger
        self._stock = stock
        self._away = away
        self._promised = promised
        self._dimensions = ledger.tree.dimensions

    # --- what queues say ---------------------------------------------------------------------------------------------
    def of_stop(self, queue: str) -> str:
        """Of a queue that lets nobody in, itself or by one above it; empty if it does."""
        tree = self._ledger.tree
        node = tree.nodes.get(queue)
        if node is None or not node.stop:
            return ""
        stopper, word = tree.stopper(node), "held" if node.stop == "hold" else "drained"
        above = "" if stopper == queue else f", and queue {queue} is below it"
        return f"queue {stopper} is {word}: it lets nobody in{above}"

    def of_refusal(self, refusal: Refusal, waiter: Waiter) -> str:
        """Of one whose turn it would be, but for this."""
        match refusal.cause:
            case Cause.QUOTA:
                return f"{self._asks(refusal, waiter)}; {self._over(refusal)}"
            case Cause.FIRM:
                return f"{self._asks(refusal, waiter)} never to be taken back; {self._firm(refusal)}"
            case Cause.HELD_BACK:
                return f"{self._asks(refusal, waiter)}; {self._held_back(refusal, waiter)}"
            case Cause.BEHIND:
                return f"{self._counts_as(waiter)}; {self._first(refusal, waiter)} has waited for long and goes first"
            case Cause.CARDS:
                return f"{self._counts_as(waiter)}; {self._free()}, and no node that may take it has room for it now"
            case Cause.NODES:
                return refusal.why

    def of_borrowers(self, beyond: Mapping[str, int], dimension: int) -> str:
        """Of what queues use beyond what they are due."""
        together = sum(beyond.values())
        if not together:
            return "no other queue uses more than it is guaranteed"
        whose = of_whom({name: amount for name, amount in beyond.items() if amount}, dimension, of=self._dimensions)
        return f"others have borrowed {spoken(together, dimension, of=self._dimensions)}{whose}"

    def _asks(self, refusal: Refusal, waiter: Waiter) -> str:
        asked = asked_of(refusal.dimension, refusal.asked, (waiter,), of=self._dimensions)
        if refusal.pods == 1:
            return f"it asks {asked}"
        group = waiter.group.name if waiter.group else ""
        return f"group {group} starts with {refusal.pods} pods, which ask {asked}"

    def _first(self, refusal: Refusal, waiter: Waiter) -> str:
        return told_of(refusal.first, namespace=waiter.pod.metadata.namespace)

    def _counts_as(self, waiter: Waiter) -> str:
        # A whole GPU counts with all its memory, and memory left out with its part of the largest card.
        return f"it counts as {slices(waiter.amounts, of=self._dimensions)}"

    def _over(self, refusal: Refusal) -> str:
        account, dim = self._ledger.accounts[refusal.queue], refusal.dimension
        used, most = (bare(amount[dim], dim, of=self._dimensions) for amount in (account.used, account.node.ceiling))
        return f"queue {refusal.queue} uses {used} of the {most} that it may have"

    def _firm(self, refusal: Refusal) -> str:
        account, dim = self._ledger.accounts[refusal.queue], refusal.dimension
        if self._ledger.tree.leaf(refusal.queue) is None:
            return "others are guaranteed what is left of it"
        given, due = (bare(amount[dim], dim, of=self._dimensions) for amount in (account.firm, account.node.due))
        return f"queue {refusal.queue} has given {given} of its guarantee of {due} so"

    def _held_back(self, refusal: Refusal, waiter: Waiter) -> str:
        dim, ledger = refusal.dimension, self._ledger
        account = ledger.accounts[refusal.queue]
        if refusal.queue == ROOT:
            free, held = self._stock.free[dim], ledger.held_back(dim)
            left = f"{self._free_of(dim)} are free{self._but_away(dim)}"
        else:
            free, held = account.node.ceiling[dim] - account.used[dim], account.held[dim]
            left = f"queue {refusal.queue} may use {bare(free, dim, of=self._dimensions)} more"
        return f"{left}, {self._for_others(refusal, waiter, free=free, held=held)}"

    def _for_others(self, refusal: Refusal, waiter: Waiter, *, free: int, held: int) -> str:
        """What of that is not for this pod: nobody is told that its own guarantee is in its way."""
        dim, holders = refusal.dimension, self._holders(refusal)
        others = self._others(holders, refusal, waiter)
        of_others = held - sum(holders.values()) + sum(others.values())
        # Of a reservation for which nobody asks, nothing is due to anybody now.
        if refusal.reserved or 0 < of_others <= refusal.kept:
            keepers = self._ledger.reservations.keepers(refusal.queue, dim)
            whose = of_whom(self._others(keepers, refusal, waiter), dim, of=self._dimensions)
            return f"and {bare(refusal.kept, dim, of=self._dimensions)} is reserved{whose}"
        if of_others <= 0:
            return "held back for its own queue"
        kept = bare(min(free, of_others), dim, of=self._dimensions)
        return f"and {kept} of that is held back for guarantees{of_whom(others, dim, of=self._dimensions)}"

    def _holders(self, refusal: Refusal) -> Mapping[str, int]:
        """For whom that is held back: each with its own part, above those below it."""
        dim, accounts = refusal.dimension, self._ledger.accounts
        below = [one for one in accounts.values() if one.node.name != refusal.queue in one.node.path]
        parts = {one.node.name: one.held[dim] - one.held_below[dim] for one in below}
        return {name: held for name, held in parts.items() if held > 0}

    def _others(self, held: Mapping[str, int], refusal: Refusal, waiter: Waiter) -> dict[str, int]:
        """Without what is the pod's own as far as it asks that: of its queue, then of those above."""
        found, asked = dict(held), refusal.asked
        for name in self._ledger.tree.path(waiter.queue):
            own = min(asked, found.get(name, 0))
            asked -= own
            found[name] = found.get(name, 0) - own
        return {name: amount for name, amount in found.items() if amount}

    # --- what cards have ---------------------------------------------------------------------------------------------
    def of_gang_without_room(self, members: Sequence[Waiter]) -> str:
        """Of those of a gang who start together, and find no room as a whole."""
        group = members[0].group
        name, topology = (group.name, group.topology) if group else ("", Topology.ANY)
        counts, together = slices(summed(members), of=self._dimensions), _TOGETHER[topology]
        starts = f"group {name} starts with {len(members)} pods, which count as {counts}"
        return f"{starts}; {self._free()}, and there is no {together}"

    def _free(self) -> str:
        both = " and ".join(self._free_of(dim) for dim in (COMPUTE, MEMORY))
        free = f"of all GPUs {both} are free{self._but_away(COMPUTE)}"
        if not self._promised.pods:
            return free
        whose = f"{counted(self._promised.pods, 'pod')} that {agreed(self._promised.pods, 'is', 'are')} not bound yet"
        return f"{free}, beside {slices(self._promised.amounts, of=self._dimensions)} promised to {whose}"

    def _free_of(self, dimension: int) -> str:
        # What is on nodes that take no pods is never free, so it does not count as there either.
        free, away = self._stock.free[dimension], self._away.capacity
        there = self._stock.capacity[dimension] - (away[dimension] if away else 0)
        return f"{free} of {bare(there, dimension, of=self._dimensions)}"

    def _but_away(self, dimension: int) -> str:
        """Of which nodes the GPUs are not counted, where they have any of these."""
        away = self._away
        if not (away.capacity and away.capacity[dimension]):
            return ""
        cordoned = [counted(away.cordoned, "cordoned node")] if away.cordoned else []
        out = [f"{counted(away.out, 'node')} that {agreed(away.out, 'is', 'are')} out"] if away.out else []
        return f" (not counted: {' and '.join([*cordoned, *out])})"
