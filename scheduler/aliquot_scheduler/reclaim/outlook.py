"""Queues and cards as they will be once all have gone who go, and all are in for whom room is made.

The ledger is borrowed for that: whoever leaves is charged with nothing, whoever room is made for is charged, whoever is
sent away asks again (`again.py`), and at the end it is given back as it was. What will be free is not what is free now
and what those hold who go: room may be kept where nobody lies, and who goes from a GPU that is sick, or from a node to
which nothing may be bound, leaves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aliquot_core.claims import Claim
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.charged.ledger import Charge, Ledger
from aliquot_scheduler.queues.judging.cards import Away, Cards, Stock
from aliquot_scheduler.queues.judging.rules import Refusal, Rules
from aliquot_scheduler.queues.room.clearings import GpuKey, Place
from aliquot_scheduler.queues.waiting.waiter import Candidate, GangKey, Waiter
from aliquot_scheduler.reclaim.again import Again
from aliquot_scheduler.reclaim.residents import Resident
from aliquot_scheduler.reclaim.scene import Scene


class Outlook:
    """What is supposed, to be judged by the very rules that let in."""

    def __init__(
        self, *, ledger: Ledger, cards: Cards, picture: Picture, gangs: Mapping[GangKey, Collection[str]]
    ) -> None:
        """`gangs` is everybody of each gang who is in."""
        self._ledger = ledger
        self._cards = cards
        self._picture = picture
        stock = cards.stock()
        self._capacity, self._free = stock.capacity, list(stock.free)
        self._charged: list[str] = []
        self._released: dict[str, Charge] = {}
        self._again = Again(ledger=ledger, gangs=gangs)

    def begin(
        self,
        *,
        leaving: Iterable[Resident],
        places: Iterable[Place],
        scene: Scene,
        moved: Collection[str] = (),
        awaited: Collection[Resident] = (),
    ) -> None:
        """Those leave already, and these places are kept; the scene knows of both.

        Of those who leave these are moved (UIDs): they come again, and are charged as they are; so are those who are
        awaited in the place of others. What is kept is not free as it is, so only those GPUs change from which somebody
        goes.
        """
        for waiter in (*(place.waiter for place in places), *(one.waiter for one in awaited)):
            self._charge(waiter)
        stay = {*moved} - {one.instead_of for one in awaited}
        keys: set[GpuKey] = set()
        for one in leaving:
            if one.uid not in stay:
                self._release(one)
            keys |= one.claims.keys()
        for key in sorted(keys):
            self._foresee(key, scene=scene)

    def end(self) -> None:
        """Nothing is supposed any more."""
        self._again.end()
        for uid in self._charged:
            self._ledger.release(uid)
        for uid, charge in self._released.items():
            if uid not in self._charged:
                self._ledger.charge(uid, charge)

    def goes(self, one: Resident) -> None:
        """It is gone, and asks again."""
        if self._release(one):
            self._again.goes(one)
            self._count(one.claims, sign=+1)

    def stays(self, one: Resident) -> None:
        """It is there still."""
        if (charge := self._released.pop(one.uid, None)) is not None:
            self._ledger.charge(one.uid, charge)
            self._again.stays(one)
            self._count(one.claims, sign=-1)

    def lies(self, one: Resident, place: Place) -> None:
        """One that was gone is there again, in another place."""
        self.stays(one)
        self._count(one.claims, sign=+1)
        self._count(place.room, sign=-1)

    def comes(self, place: Place) -> None:
        """A pod lies there."""
        self._charge(place.waiter)
        self._count(place.room, sign=-1)

    def leaves(self, place: Place) -> None:
        """It does not after all."""
        self._charged.remove(place.waiter.uid)
        self._ledger.release(place.waiter.uid)
        self._count(place.room, sign=+1)

    def stock(self) -> Stock:
        """What there will be."""
        return Stock(capacity=self._capacity, free=tuple(self._free))

    def away(self) -> Away:
        """What of that no pod can have, as it is now: nobody who goes changes it."""
        return self._cards.away()

    def refusal(self, candidate: Candidate) -> Refusal | None:
        """Why it would not be let in then, beside all who ask again."""
        self._again.settle()
        return Rules(ledger=self._ledger, cards=self).refusal(candidate)

    # --- what is charged ---------------------------------------------------------------------------------------------
    def _release(self, one: Resident) -> bool:
        charge = self._ledger.of(one.uid)
        if charge is None:
            return False
        self._released[one.uid] = charge
        self._ledger.release(one.uid)
        return True

    def _charge(self, waiter: Waiter) -> None:
        self._charged.append(waiter.uid)
        charge = Charge(queue=waiter.queue, amounts=waiter.amounts, firm=waiter.shape.firm)
        self._ledger.charge(waiter.uid, charge)

    # --- what is free ------------------------------------------------------------------------------------------------
    def _foresee(self, key: GpuKey, *, scene: Scene) -> None:
        """Count a GPU as it will be, and not as it is."""
        grid = self._picture.grid
        if (at := self._usable(key)) is None:
            return
        left = scene.left(key, compute=int(grid.total[at]), usable=int(grid.usable[at]))
        now = (0, 0) if grid.closed[at] else (int(grid.compute[at]), int(grid.memory[at]))
        then = (0, 0) if left.closed else (max(0, left.compute), max(0, left.memory))
        self._add(key, then[0] - now[0], then[1] - now[1])

    def _count(self, claims: Mapping[GpuKey, Claim], *, sign: int) -> None:
        for key, claim in claims.items():
            if (at := self._usable(key)) is not None:
                compute, memory = claim.compute.value, claim.memory.value
                if claim.closes:
                    compute, memory = WHOLE.value, int(self._picture.grid.usable[at])
                self._add(key, sign * compute, sign * memory)

    def _usable(self, key: GpuKey) -> tuple[int, int] | None:
        """Where it is in the grid, if what is free of it counts."""
        known = self._picture.nodes.get(key[0])
        if known is None or key[1] not in known.columns:
            return None
        grid, at = self._picture.grid, (known.row, known.columns[key[1]])
        return at if grid.open[at] and grid.bindable[known.row] else None

    def _add(self, key: GpuKey, compute: int, memory: int) -> None:
        for dimension in self._cards.counted_in(self._picture.nodes[key[0]].inventory.gpu(key[1])):
            self._free[dimension] += compute
            self._free[dimension + 1] += memory
