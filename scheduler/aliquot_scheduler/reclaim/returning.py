"""Whether those who are moved come in again: judged before anybody is asked, by the very rules that will let them in.

Theory of operation. As for those for whom others go (`planning.py`), everything is judged as it will be: who leaves
already is gone, those who are moved are gone and ask again, whoever they go for is in. Then one after the other comes
to its new place, and the rules say of each whether it may.

Off a GPU that fails whoever borrows goes only where it takes no owner the last sound room: what queues do not use of
their guarantees now they may demand at any time, and would have found sound without the move.

What must always hold: nobody is moved whose successor would not be let in as things are; the ledger is given back as it
was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Place
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.outlook import Outlook
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.scene import Scene

# Who goes, and where it is to lie.
Going = tuple[Resident, Place]


class Returning:
    """One look."""

    def __init__(self, *, register: Register, picture: Picture, residents: Residents) -> None:
        self._ledger = register.books.ledger
        self._cards = register.cards
        self._hall = register.hall
        self._picture = picture
        self._leaving = list(residents.leaving.values())

    def let_in(self, going: Sequence[Going], *, beside: Place | None = None) -> bool:
        """Whether all of these come in again, once the one lies there for whom they go."""
        if not all(self.lets_in_any_of(one.queue) for one, _ in going):
            return False
        with self._supposing(beside) as outlook:
            for one, _ in going:
                outlook.goes(one)
            if beside:
                outlook.comes(beside)
            return all(_comes(outlook, one, place) for one, place in going)

    @contextmanager
    def _supposing(self, beside: Place | None) -> Iterator[Outlook]:
        """That those have gone who leave already; and whoever is to lie there stands in line no more."""
        outlook = Outlook(ledger=self._ledger, cards=self._cards, picture=self._picture, gangs={})
        scene = Scene(picture=self._picture, leaving=self._leaving)
        asks = [(beside.waiter.queue, ask) for ask in self._hall.asked_by(beside.waiter.uid)] if beside else []
        for queue, ask in asks:
            self._ledger.ask_no_more(queue, ask)
        outlook.begin(leaving=self._leaving, places=(), scene=scene)
        try:
            yield outlook
        finally:
            outlook.end()
            for queue, ask in asks:
                self._ledger.ask(queue, ask)

    def leaves_owners_sound_room(self, going: Sequence[Going]) -> bool:
        """Whether beside these enough sound room is left for all that queues do not use of their guarantees.

        Or whoever comes last is inside of one.
        """
        one, _ = going[-1]
        amounts = self._cards.amounts_of(one.claims)
        idle = self._idle()
        charge = self._ledger.of(one.uid)
        self._ledger.release(one.uid)
        without = self._idle()
        if charge is not None:
            self._ledger.charge(one.uid, charge)
        free = list(self._cards.sound())
        for _, place in going:
            free = [there - taken for there, taken in zip(free, self._cards.amounts_of(place.room), strict=True)]
        return all(
            then - now >= amount or left >= now
            for amount, then, now, left in zip(amounts, without, idle, free, strict=True)
            if amount
        )

    def lets_in_any_of(self, queue: str) -> bool:
        """Whether a queue is there, and not stopped."""
        node = self._ledger.tree.nodes.get(queue)
        return node is not None and not node.stop

    def _idle(self) -> list[int]:
        """What is not used of all guarantees, by dimension of GPUs."""
        return [self._idle_of(ROOT, dim) for dim in range(self._ledger.tree.dimensions.cards)]

    def _idle_of(self, queue: str, dimension: int) -> int:
        account = self._ledger.accounts[queue]
        below = sum(self._idle_of(child, dimension) for child in account.node.children)
        used, node = account.used[dimension], account.node
        return min(max(below, node.guarantee[dimension] - used), max(0, node.ceiling[dimension] - used))


def _comes(outlook: Outlook, one: Resident, place: Place) -> bool:
    if outlook.refusal(Candidate(members=(one.waiter,), amounts=one.amounts)) is not None:
        return False
    outlook.lies(one, place)
    return True
