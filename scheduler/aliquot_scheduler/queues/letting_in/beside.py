"""Room for who comes in beside the nodes that are kept for others; and what is told to who has none elsewhere.

What is guaranteed is in no node but in all. So who takes it comes to a node that is kept for somebody else only where
no other has room: it may take any.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot_scheduler.deciding.promises import Promise
from aliquot_scheduler.queues.charged.ledger import Ledger
from aliquot_scheduler.queues.judging.rules import Cause, First, Refusal, no_room
from aliquot_scheduler.queues.letting_in.gangs import Placing
from aliquot_scheduler.queues.letting_in.keeping import Keeping
from aliquot_scheduler.queues.letting_in.sweep_memory import SweepMemory
from aliquot_scheduler.queues.waiting.hall import Hall
from aliquot_scheduler.queues.waiting.order import takes_its_own, within_guarantee
from aliquot_scheduler.queues.waiting.waiter import Candidate

# Who has room only where it is kept from them is looked at closely, to be told what is so; where that comes to many in
# one sweep, since such a node got room, the others are told by what they ask of a card alone.
_MOST_ASKED_IN_VAIN = 16


class Beside:
    """In one sweep."""

    def __init__(
        self, *, keeping: Keeping, ledger: Ledger, hall: Hall, memory: SweepMemory, placing: Placing, now: float
    ) -> None:
        self._keeping = keeping
        self._ledger = ledger
        self._hall = hall
        self._memory = memory
        self._placing = placing
        # Those of whom others may have been told that they stand back for them.
        unmoved = map(hall.standing, memory.unmoved(now=now))
        self._stood_back_for = frozenset(head.uid for head in unmoved if head)
        self._asked_in_vain = 0

    def stand_back(self, queue: str) -> Callable[[Candidate], bool]:
        """Whether nothing has room for one of a queue but what is kept from it, which it is told: it need not be asked.

        What is the same for all of them is worked out once; it holds until others are kept, or somebody is let in.
        """
        leaves_room, ledger = self._keeping.leaves_room(), self._ledger
        held = ledger.held_for(queue)
        if not any(held[dim] for dim in ledger.guaranteed(queue)):
            return lambda one: not leaves_room(one) and self._is_told(one)
        after = {dim for dim in self._keeping.waiting_for(self._keeping.all_kept()).values() if held[dim]}

        def stands_back(one: Candidate) -> bool:
            if leaves_room(one) or within_guarantee(ledger, one) or any(self._takes_its_own(one, dim) for dim in after):
                return False
            return self._is_told(one)

        return stands_back

    def _is_told(self, candidate: Candidate) -> bool:
        """Whether it is told that it stands back; of the first few it is looked at closely."""
        queue, mark = candidate.first.queue, candidate.first.mark
        refusal = self._memory.sayings.why(queue, mark)
        if refusal is not None and refusal.first is not None and refusal.first.uid in self._stood_back_for:
            return True
        self._asked_in_vain += 1
        if self._asked_in_vain <= _MOST_ASKED_IN_VAIN or not candidate.one_piece:
            return False
        self._memory.sayings.say(queue, mark, self._behind(self._keeping.roughly_behind(candidate)))
        return True

    def promised(self, candidate: Candidate) -> tuple[list[Promise], Refusal | None]:
        """Room for all of them, or for none; and why there is none, where nodes are kept from it."""
        but = self._kept_from(candidate) if self._keeping.anything() else frozenset[str]()
        roomy = self._placing.roomy(candidate) if but else but
        # Most are seen to have room on such nodes alone; to search costs more.
        nowhere_else = bool(roomy) and roomy <= but
        if but and within_guarantee(self._ledger, candidate):
            promises = [] if nowhere_else else self._placing.place(candidate, but=but)
            return self._anywhere(candidate) if not promises else self._found(candidate, promises), None
        if nowhere_else:
            return [], self._refusal(candidate)
        if not but:
            return self._anywhere(candidate), None
        refused, asked = self._memory.refused_beside, (candidate.shape, but)
        if asked not in refused:
            if promises := self._placing.place(candidate, but=but):
                return self._found(candidate, promises), None
            refused[asked] = self._refusal(candidate)
        return [], refused[asked]

    def _kept_from(self, candidate: Candidate) -> frozenset[str]:
        """Not for heads that wait for a guarantee which this one takes as its own: they can't come in before it."""
        kept, held = self._keeping.kept_from(candidate), self._ledger.held_for(candidate.first.queue)
        # Hundreds of heads may have nodes, and for most candidates nothing is held back.
        if not any(0 < asked <= there for asked, there in zip(candidate.amounts, held, strict=True)):
            return kept
        waiting = self._keeping.waiting_for(kept)
        own = {dim for dim in set(waiting.values()) if self._takes_its_own(candidate, dim)}
        after = [uid for uid, dim in waiting.items() if dim in own]
        return frozenset(node for node in kept if self._keeping.is_kept_but_for(node, after)) if after else kept

    def _takes_its_own(self, candidate: Candidate, dimension: int) -> bool:
        """Whether all that it takes of one dimension is held back for it; most can't for there is not so much."""
        queue, amounts = candidate.first.queue, candidate.amounts
        if not 0 < amounts[dimension] <= self._ledger.held_for(queue)[dimension]:
            return False
        return takes_its_own(self._ledger.effect(dimension, queue, amounts), amounts[dimension])

    def _anywhere(self, candidate: Candidate) -> list[Promise]:
        promises = self._found(candidate, self._placing.place(candidate, but=frozenset()))
        if not promises:
            self._memory.refuse(candidate, why=self._placing.why_no_node(candidate))
        return promises

    def _found(self, candidate: Candidate, promises: list[Promise]) -> list[Promise]:
        self._memory.taken({promise.node for promise in promises}, by=candidate.uid)
        return promises

    def _refusal(self, candidate: Candidate) -> Refusal:
        """Of one that found no room but on nodes that are kept for others, if there."""
        if (uid := self._keeping.behind(candidate)) is not None:
            return self._behind(uid)
        return no_room(self._placing.why_no_node(candidate))

    def _behind(self, uid: str) -> Refusal:
        head = self._hall.standing(uid)
        return Refusal(cause=Cause.BEHIND, first=First.of(head) if head else None)
