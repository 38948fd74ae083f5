"""Whether a candidate may be let in, by the numbers; and who has to stand back for one that has waited too long.

Back-filling lets those behind pass a head of a line that does not fit. It ends when the head has been refused for the
time of patience. If quota is missing, nobody who comes after it in order gets any of the queue that has none for it.
If room is missing, they leave it what the limits above it leave it now. Either way the emptiest node where it would fit
is kept for it, for a gang as many as it needs, as far as its share reaches (`keeping.py`), and from nobody who takes
what is guaranteed to them: an order by shares alone would let others in for ever, as its queue's own small pods keep
its share up. It needs both at once: who had one of them kept at a time would lose each while it waits for the other.

So what it waits for only grows free: a head waits at most twice its patience, then for those who were let in before, if
they end within the time for which others may be held up. Nobody is kept waiting for those who have run for longer
(`stayers.py`). After that time all may pass again for the time of patience, and so on in turns: whatever it is that
keeps a head out must not stop a cluster. These times are the same for all heads, else some head would always hold
others up; only who is within its share, and has waited for long, holds others up for longer at a time
(`Patience.doublings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.cards import Stock
from aliquot_scheduler.queues.said.tree import COMPUTE, ROOT
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter


class Cause(StrEnum):
    """Why a candidate is not let in."""

    QUOTA = "quota"
    FIRM = "guarantee"
    HELD_BACK = "held back"
    BEHIND = "behind"
    CARDS = "cards"
    NODES = "nodes"


class First(msgspec.Struct, frozen=True, kw_only=True):
    """Who has waited for so long that others stand back for it: its pod, and where that waits."""

    uid: str
    namespace: str
    name: str
    queue: str

    @classmethod
    def of(cls, waiter: Waiter) -> First:
        """As it waits."""
        meta = waiter.pod.metadata
        return cls(uid=meta.uid, namespace=meta.namespace, name=meta.name, queue=waiter.queue)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A cause, at which queue (the root: for all together), in which dimension; of nodes also why, in numbers."""

    cause: Cause
    queue: str = ROOT
    dimension: int = COMPUTE
    why: str = ""
    # Of how many pods at once so much was asked.
    asked: int = 0
    pods: int = 1
    # For whom it stands back.
    first: First | None = None
    # Of what is held back: how much of it others would keep idle still; and whether that alone is why.
    kept: int = 0
    reserved: bool = False


def no_room(why: str) -> Refusal:
    """No card has room; or `why` no node takes the pod that has one with room."""
    return Refusal(cause=Cause.NODES, why=why) if why else Refusal(cause=Cause.CARDS)


class InStock(Protocol):
    """Who knows what there is and is free."""

    def stock(self) -> Stock:
        """Now."""
        ...


class Rules:
    """The rules for one round of turns."""

    def __init__(self, *, ledger: Ledger, cards: InStock) -> None:
        self._ledger = ledger
        self._cards = cards
        self._stock: Stock = cards.stock()
        # Each by the one for whom it is; a queue in the dimension in which it has none for that one.
        self._closed_queues: dict[tuple[str, int], First] = {}
        self._closed_firm: dict[str, First] = {}
        self._closed_dimensions: dict[int, First] = {}
        # Who waits for a node, and has what its limits have to leave it.
        self._left_for: list[Candidate] = []

    def let_in(self) -> None:
        """Somebody was let in: what is free is counted anew."""
        self._stock = self._cards.stock()

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Why it may not be let in."""
        refusal = self._refusal(candidate)
        if refusal is None:
            return None
        amounts, pods, kept = candidate.amounts, len(candidate.members), 0
        if refusal.cause is Cause.FIRM:
            amounts, pods = candidate.firm, sum(member.shape.firm for member in candidate.members)
        elif refusal.cause is Cause.HELD_BACK:
            kept = self._ledger.kept_idle(refusal.dimension, candidate.first.queue, amounts, at=refusal.queue)
        return msgspec.structs.replace(refusal, asked=amounts[refusal.dimension], pods=pods, kept=kept)

    def refuses_for(self, refusal: Refusal, *, first: First) -> None:
        """Somebody has lost patience who waits for quota: who comes after stands back."""
        match refusal.cause:
            case Cause.QUOTA:
                self._closed_queues.setdefault((refusal.queue, refusal.dimension), first)
            case Cause.FIRM:
                self._closed_firm.setdefault(refusal.queue, first)
            case Cause.HELD_BACK if refusal.queue:
                self._closed_queues.setdefault((refusal.queue, refusal.dimension), first)
            case Cause.HELD_BACK:
                self._closed_dimensions.setdefault(refusal.dimension, first)
            case Cause.BEHIND | Cause.CARDS | Cause.NODES:
                pass

    def leaves_to(self, head: Candidate) -> None:
        """Somebody has lost patience who waits for a node: who comes after leaves it what its limits leave it now."""
        self._left_for.append(head)

    def _refusal(self, candidate: Candidate) -> Refusal | None:
        queue, amounts = candidate.first.queue, candidate.amounts
        if over := self._ledger.over(queue, amounts):
            return Refusal(cause=Cause.QUOTA, queue=over[0].node.name, dimension=over[1])
        if candidate.firm and (unsure := self._ledger.unsure(queue, candidate.firm, capacity=self._stock.capacity)):
            return Refusal(cause=Cause.FIRM, queue=unsure[0], dimension=unsure[1])
        return self._taken_from_others(queue, amounts) or self._stands_back(candidate)

    def takes_from_others(self, queue: str, amounts: Sequence[int]) -> bool:
        """Whether so much more in a queue would take of what is held back for others."""
        return self._taken_from_others(queue, amounts) is not None

    def _taken_from_others(self, queue: str, amounts: Sequence[int]) -> Refusal | None:
        """No admission takes what is held back for others: it leaves enough, or takes only what is its own.

        And what others keep idle it takes by no guarantee either.
        """
        for dimension, free in enumerate(self._stock.free):
            held, amount = self._ledger.held_back(dimension), amounts[dimension]
            if not amount or (not held and dimension not in self._closed_dimensions):
                continue
            effect = self._ledger.effect(dimension, queue, amounts)
            if effect.injured:
                return Refusal(cause=Cause.HELD_BACK, queue=effect.injured, dimension=dimension)
            own = effect.lessened >= amount
            if not own and free - amount < held - effect.lessened:
                return Refusal(cause=Cause.HELD_BACK, dimension=dimension)
            if not own and dimension in self._closed_dimensions:
                first = self._closed_dimensions[dimension]
                return Refusal(cause=Cause.BEHIND, queue=queue, dimension=dimension, first=first)
            robbed = self._ledger.taken_of_idle(dimension, queue, amounts, free=free)
            if robbed is not None:
                return Refusal(cause=Cause.HELD_BACK, queue=robbed, dimension=dimension, reserved=True)
        return None

    def _stands_back(self, candidate: Candidate) -> Refusal | None:
        path = self._ledger.tree.path(candidate.first.queue)
        for (name, dimension), first in self._closed_queues.items():
            if name in path and candidate.amounts[dimension]:
                return Refusal(cause=Cause.BEHIND, queue=name, dimension=dimension, first=first)
        for name in path:
            if name in self._closed_firm and candidate.firm:
                return Refusal(cause=Cause.BEHIND, queue=name, first=self._closed_firm[name])
        for head in self._left_for:
            over = self._ledger.crowds(head.first.queue, head.amounts, by=candidate.amounts, of=path)
            if over is not None and head.uid != candidate.uid:
                return Refusal(cause=Cause.BEHIND, queue=over[0], dimension=over[1], first=First.of(head.first))
        return None
