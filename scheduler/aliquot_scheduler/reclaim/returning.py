"""Whether those who are moved come in again: judged before anybody is asked, by the very rules that will let them in.

Theory of operation. As for those for whom others go (`planning.py`), everything is judged as it will be: who leaves
already is gone, those for whom room is made are in, those who are moved are gone and ask again, whoever they go for is
in. Then one after the other comes to its new place, and the rules say of each whether it may.

Off a GPU that fails whoever borrows goes only where it leaves owners who wait what they demand of GPUs that are sound:
it is judged as if there were no others. An owner that comes later takes back what it needs (`reclaim.py`).

What must always hold: nobody is moved whose successor would not be let in as things are; the ledger is given back as it
was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards, Stock
from aliquot_scheduler.queues.judging.rules import Rules
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import Place
from aliquot_scheduler.queues.waiting.waiter import Candidate
from aliquot_scheduler.reclaim.outlook import Outlook
from aliquot_scheduler.reclaim.residents import Resident, Residents, runs_since
from aliquot_scheduler.reclaim.rights import owns_with
from aliquot_scheduler.reclaim.scene import Scene

# Who goes, and where it is to lie.
Going = tuple[Resident, Place]


class Returning:
    """One look."""

    def __init__(self, *, register: Register, picture: Picture, residents: Residents) -> None:
        self._ledger = register.books.ledger
        self._register = register
        self._cards = register.cards
        self._hall = register.hall
        self._picture = picture
        self._leaving = list(residents.leaving.values())

    def let_in(self, going: Sequence[Going], *, beside: Place | None = None, sound: bool = False) -> bool:
        """Whether all of these come in again, once the one lies there for whom they go.

        With `sound`, also if no GPU counted that fails.
        """
        if not all(self.lets_in_any_of(one.queue) for one, _ in going):
            return False
        borrow = list[Resident]()
        stock = _SoundStock(self._cards)
        with self._supposing(beside) as outlook:
            for one, _ in going:
                outlook.goes(one)
            if beside:
                outlook.comes(beside)
            for one, place in going:
                if outlook.refusal(Candidate(members=(one.waiter,), amounts=one.amounts)) is not None:
                    return False
                if sound and Rules(ledger=self._ledger, cards=stock).takes_from_others(one.queue, one.amounts):
                    borrow.append(one)
                outlook.lies(one, place)
                stock.take(place)
        return all(map(self._is_within_guarantee, borrow))

    @contextmanager
    def _supposing(self, beside: Place | None) -> Iterator[Outlook]:
        """That those have gone who leave already; and whoever is to lie there stands in line no more."""
        outlook = Outlook(ledger=self._ledger, cards=self._cards, picture=self._picture, gangs={})
        scene = Scene(picture=self._picture, leaving=self._leaving)
        asks = [(beside.waiter.queue, ask) for ask in self._hall.asked.by(beside.waiter.uid)] if beside else []
        for queue, ask in asks:
            self._ledger.ask_no_more(queue, ask)
        places = [place for clearing in self._register.clearings for place in clearing.places]
        outlook.begin(leaving=self._leaving, places=places, scene=scene, moved=self._register.refuges.movers())
        try:
            yield outlook
        finally:
            outlook.end()
            for queue, ask in asks:
                self._ledger.ask(queue, ask)

    def _is_within_guarantee(self, one: Resident) -> bool:
        """Whether with all who have run for longer it lies inside a guarantee: who came last has borrowed."""
        since = runs_since(one.waiter.pod), one.uid
        bound = self._register.inside.bound.items()
        before = [uid for uid, waiter in bound if (runs_since(waiter.pod), uid) < since]
        charges = [charge for uid in before if (charge := self._ledger.of(uid)) is not None]
        return owns_with(one.queue, one.amounts, charges, ledger=self._ledger)

    def lets_in_any_of(self, queue: str) -> bool:
        """Whether a queue is there, and not stopped."""
        node = self._ledger.tree.nodes.get(queue)
        return node is not None and not node.stop


class _SoundStock:
    """What is free of GPUs that do not fail."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self._capacity = cards.stock().capacity
        self._free: Iterable[int] = cards.sound()

    def take(self, place: Place) -> None:
        """Somebody lies there."""
        self._free = [there - less for there, less in zip(self._free, self._cards.amounts_of(place.room), strict=True)]

    def stock(self) -> Stock:
        """That."""
        return Stock(capacity=self._capacity, free=tuple(self._free))
