"""Who asks in each queue, and whom of them limits let in as things are: the others demand no guarantee.

What is held back for a pod that a limit keeps out would idle: a guarantee of memory is of no use to a pod that a limit
of compute does not let in. So who asks counts only if it fits under every ceiling on its way up, in every dimension (of
models only where it has no other cards), and who is never to be evicted only within what its queue is due.

A ceiling may be full of what others have borrowed, though a queue below it is **guaranteed** what is asked. What they
give back is for that queue, so who asks there counts for it, and for all that are below that ceiling. It does not count
for those above: they use all that they may.

What must always hold: who counts depends on what is asked and in use alone, not on how it came about. Looked at are
queues that are guaranteed something, and only where what is in use passes what somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from aliquot_scheduler.queues.charged.account import Account
from aliquot_scheduler.queues.charged.portions import Portions
from aliquot_scheduler.queues.said.tree import ROOT, UNLIMITED, Vector


class Ask(NamedTuple):
    """What is to be let in at once."""

    amounts: Vector
    # What of it limits have to let in: without models that it can do without.
    least: Vector
    # What of it is never to be taken back; empty if nothing is.
    firm: Vector = ()
    # It demands no guarantee for now: it was looked for in vain. Its queue is due a share for it all the same.
    quiet: bool = False
    # No node that is there could take it: neither is a share due for it. Then it is quiet as well.
    awaits_node: bool = False


class Change(NamedTuple):
    """So many who ask so count for another number of queues on their way up."""

    queue: str
    ask: Ask
    times: int
    was: int
    now: int


# A dimension, and how much is asked of it for whom something may be otherwise: more than this, and at most that.
_Span = tuple[int, int, int]


class _Asker:
    """Those who ask the same in one queue."""

    __slots__ = ("counts", "times")

    def __init__(self, *, counts: int) -> None:
        self.times = 0
        # For how many queues on their way up, from their own on.
        self.counts = counts


class Askers:
    """Of all queues."""

    def __init__(self, accounts: Mapping[str, Account], *, cards: int) -> None:
        """`cards` is how many dimensions are of GPUs: in no other is anything due for good."""
        self._accounts = accounts
        self._cards = cards
        self._paths = {name: _below_root(account, accounts) for name, account in accounts.items()}
        self._guaranteed = {name for name, path in self._paths.items() if any(any(one.node.guarantee) for one in path)}
        # In which dimensions something limits a queue, itself or above it.
        self._limited = {name: _limits(self._paths[name]) for name in self._guaranteed}
        self._asking: dict[str, dict[Ask, _Asker]] = {}
        # How much is asked at once at a queue and below it, by dimension.
        self._sizes: dict[tuple[str, int], Portions] = {}

    def add(self, queue: str, ask: Ask, *, times: int) -> int:
        """So many more ask so, or fewer; for how many queues on the way up they count, from their own on."""
        if ask.quiet:
            return 0
        if queue not in self._guaranteed or not (self._limited[queue] or ask.firm):
            return len(self._paths[queue])
        asking = self._asking.setdefault(queue, {})
        asker = asking.get(ask)
        if asker is None:
            asker = asking[ask] = _Asker(counts=self._counts_for(queue, ask))
        asker.times += times
        if not asker.times:
            del asking[ask]
        for account in self._paths[queue]:
            for dim in self._limited[queue]:
                if ask.least[dim]:
                    self._sizes.setdefault((account.node.name, dim), Portions()).add(ask.least[dim], times=times)
        return asker.counts

    def changed(self, queue: str, amounts: Sequence[int], *, firm: bool) -> Iterator[Change]:
        """So much more is in use there, or less: whose asking counts otherwise since."""
        passed = self._passed(queue, amounts)
        for name in self._touched(queue, passed, firm=firm):
            spans = [span for account in self._paths[name] for span in passed.get(account.node.name, ())]
            for ask, asker in self._asking[name].items():
                if not ((firm and name == queue) or any(low < ask.least[dim] <= high for dim, low, high in spans)):
                    continue
                was, asker.counts = asker.counts, self._counts_for(name, ask)
                if was != asker.counts:
                    yield Change(queue=name, ask=ask, times=asker.times, was=was, now=asker.counts)

    # --- how it is worked out ----------------------------------------------------------------------------------------
    def _counts_for(self, queue: str, ask: Ask) -> int:
        own = self._accounts[queue]
        firm = enumerate(ask.firm[: self._cards])
        if any(amount and own.firm[dim] + amount > own.node.due[dim] for dim, amount in firm):
            return 0
        asked = (dim for dim in self._limited[queue] if ask.least[dim])
        return min((self._below_full(queue, dim, ask.least[dim]) for dim in asked), default=len(self._paths[queue]))

    def _below_full(self, queue: str, dimension: int, amount: int) -> int:
        """How many queues are below the first ceiling that is full; none if some full one holds what nobody is due."""
        found, missing = len(self._paths[queue]), 0
        for place, account in enumerate(self._paths[queue]):
            used = account.used[dimension]
            if amount > account.node.ceiling[dimension] - used:
                if amount > missing:
                    return 0
                found = min(found, place)
            missing = max(missing, account.node.guarantee[dimension] - used)
        return found

    def _touched(self, queue: str, passed: Mapping[str, object], *, firm: bool) -> list[str]:
        """In which queues who asks may count differently since."""
        touched = {queue} if firm else set[str]()
        for above in passed:
            touched |= {name for name in self._asking if above in self._accounts[name].node.path}
        return sorted(touched & self._asking.keys())

    def _passed(self, queue: str, amounts: Sequence[int]) -> dict[str, list[_Span]]:
        """At which queues what a ceiling leaves, or what is missing of a guarantee, has passed what somebody asks.

        Who asks for more than both then and now, or for no more than either, counts as before: of hundreds nearly all.
        """
        found: dict[str, list[_Span]] = {}
        for account in self._paths.get(queue, ()):
            node, used = account.node, account.used
            for dim, amount in enumerate(amounts):
                sizes = self._sizes.get((node.name, dim)) if amount else None
                for left in (node.ceiling[dim] - used[dim], node.guarantee[dim] - used[dim]) if sizes else ():
                    low, high = min(left, left + amount), max(left, left + amount)
                    if sizes and sizes.any_between(low, high):
                        found.setdefault(node.name, []).append((dim, low, high))
        return found


def _below_root(account: Account, accounts: Mapping[str, Account]) -> list[Account]:
    return [accounts[name] for name in account.node.path if name != ROOT]


def _limits(path: Sequence[Account]) -> tuple[int, ...]:
    ceilings = zip(*(account.node.ceiling for account in path), strict=True)
    return tuple(dim for dim, column in enumerate(ceilings) if min(column) < UNLIMITED)
