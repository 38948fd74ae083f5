"""Why a queue may never give so much at once, whoever ends or is evicted: a limit, what is due for good, what is kept.

Told from the tree alone, as if nobody asked or used anything; only how much may be given for good, and what is left
beside what others keep of all there is, change with what there is. Who is told so waits in no line: it would be the
head of it for ever, and what is held back for it would idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.queues.charged.askers import Ask
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.asking import asked_of
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import ROOT, Tree, Vector
from aliquot_scheduler.queues.said.units import bare, of_whom
from aliquot_scheduler.queues.waiting.waiter import Waiter, asked_by, firm_part

# By whom it is kept, in which dimension.
_Kept = tuple[str, int]
# Under a limit, and else of all there is.
_Ways = tuple[_Kept | None, _Kept | None]


class Beyond:
    """Asks a tree in which nobody asks or uses anything."""

    def __init__(self, *, tree: Tree, cards: Cards) -> None:
        self._tree = tree
        self._cards = cards
        self._idle = Ledger(tree)
        self._anything_kept = any(any(node.kept) for node in tree.nodes.values())
        # By queue, and who asks (their shapes, by number).
        self._kept: dict[tuple[str, tuple[int, ...]], _Ways] = {}
        self._capacity: tuple[int, ...] = ()

    def forget(self) -> None:
        """There is other hardware."""
        self._kept.clear()
        self._capacity = ()

    def why(self, members: Sequence[Waiter], amounts: Vector, asks: str) -> str:
        """Why what these ask together (`amounts`) is beyond their queue; `asks` is how the sentence begins."""
        limited = self._limited(members, amounts, asks)
        return limited or self._unsure(members, asks) or self._kept_from(members, amounts, asks)

    def is_kept_of_all(self, members: Sequence[Waiter]) -> bool:
        """Whether others keep so much of all there is that these could not come in if they were alone."""
        return self._who_keeps(members)[1] is not None

    def kept_in(self, members: Sequence[Waiter]) -> int | None:
        """In which dimension others keep too much for these, under a limit or of all there is."""
        kept = next(filter(None, self._who_keeps(members)), None)
        return kept[1] if kept else None

    def is_free_for(self, dimension: int, members: Sequence[Waiter]) -> bool:
        """Whether of this others do not keep too much for these."""
        return self.kept_in(members) != dimension

    def is_never_for_good(self, queue: str, amount: int, dimension: int) -> bool:
        """Whether so much of one dimension could not be given for good even if nothing else were."""
        firm = [amount if dim == dimension else 0 for dim in range(len(self._tree.dimensions))]
        return self._idle.unsure(queue, firm, capacity=self._there()) is not None

    def _limited(self, members: Sequence[Waiter], amounts: Vector, asks: str) -> str:
        broken = self._idle.over(members[0].queue, amounts)
        if broken is None:
            return ""
        account, dim = broken
        asked = asked_of(dim, amounts[dim], members, of=self._tree.dimensions)
        most = bare(account.node.ceiling[dim], dim, of=self._tree.dimensions)
        return f"{asks} {asked}, more than the {most} that queue {account.node.name} may have"

    def _unsure(self, members: Sequence[Waiter], asks: str) -> str:
        """Why so much could not be given for good even if nothing else were; it changes with what there is."""
        queue, firm = members[0].queue, firm_part(members)
        unsure = self._idle.unsure(queue, firm, capacity=self._cards.stock().capacity) if firm else None
        if unsure is None:
            return ""
        (name, dim), dimensions = unsure, self._tree.dimensions
        asked, due = asked_of(dim, firm[dim], members, of=dimensions), self._tree.nodes[queue].due[dim]
        said = f"queue {queue} is guaranteed {bare(due, dim, of=dimensions)}"
        why = said if name == queue else "others are guaranteed what is left of it"
        return f"{asks} {asked} never to be taken back, and {why}"

    def _kept_from(self, members: Sequence[Waiter], amounts: Vector, asks: str) -> str:
        """Why it would wait for ever even if it were alone: others keep what they don't use, there or of all.

        Of all there is, a queue that grows is shown to an autoscaler instead: there may be more.
        """
        limited, of_all = self._who_keeps(members)
        kept = limited if self._tree.nodes[members[0].queue].spec.autoscale else limited or of_all
        if kept is None:
            return ""
        (name, dim), dimensions = kept, self._tree.dimensions
        asks = f"{asks} {asked_of(dim, amounts[dim], members, of=dimensions)}"
        if name == ROOT:
            return f"{asks}, and {self._said_of_all(members[0].queue, amounts, dim)}"
        most = self._tree.nodes[name].ceiling[dim]
        return (
            f"{asks}, and of the {bare(most, dim, of=dimensions)} that queue {name} may have "
            "those below it keep too much though they don't use it (lendingLimit)"
        )

    def _said_of_all(self, queue: str, amounts: Vector, dim: int) -> str:
        way, keepers = self._tree.path(queue), self._idle.reservations.keepers(ROOT, dim)
        kept = self._idle.kept_idle(dim, queue, amounts, at=ROOT)
        there, idle = (bare(amount, dim, of=self._tree.dimensions) for amount in (self._there()[dim], kept))
        others = {name: part for name, part in keepers.items() if name not in way}
        return (
            f"of the {there} that there are others keep {idle} though they don't use it (lendingLimit)"
            f"{of_whom(others, dim, of=self._tree.dimensions)}"
        )

    def _who_keeps(self, members: Sequence[Waiter]) -> _Ways:
        if not self._anything_kept:
            return None, None
        wanted = members[0].queue, tuple(member.number for member in members)
        if wanted not in self._kept:
            self._kept[wanted] = self._ways(members[0].queue, asked_by(members))
        return self._kept[wanted]

    def _ways(self, queue: str, ask: Ask) -> _Ways:
        """Of models only where it has no cards of others; of all there is only if it would fit, were nothing kept."""
        dimensions = [dim for dim in range(self._tree.dimensions.cards) if ask.least[dim]]
        self._idle.ask(queue, ask)
        injured = ((self._idle.effect(dim, queue, ask.amounts).injured, dim) for dim in dimensions)
        found = next(((name, dim) for name, dim in injured if name), None)
        self._idle.ask_no_more(queue, ask)
        if found or not any(self._idle.accounts[ROOT].idle):
            return found, None
        there = self._there()
        fitting = (dim for dim in dimensions if ask.amounts[dim] <= there[dim])
        robbed = ((self._idle.taken_of_idle(dim, queue, ask.amounts, free=there[dim]), dim) for dim in fitting)
        return None, next(((name, dim) for name, dim in robbed if name is not None), None)

    def _there(self) -> tuple[int, ...]:
        if not self._capacity:
            self._capacity = self._cards.stock().capacity
        return self._capacity
