"""From who waits and who lies there to clearings: for whom room is made now, where, and who goes for it.

Theory of operation. Everything is judged as if all clearings that stand had come true: whoever leaves is charged with
nothing, and whoever room is made for is charged. Then candidates are taken in the order of turns. For each a place is
searched by its rights as an owner, then by its priority; what was found is judged by the very rules that will let it
in; and it counts for the next one. The ledger is borrowed for that, and given back as it was.

What must always hold: nobody goes for a candidate that would not be let in then, or for whom no place was found on
real cards; the same state gives the same clearings; nothing that was lent here is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from aliquot_core.membership import Topology
from aliquot_scheduler.fit.links import islands
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode, Picture
from aliquot_scheduler.queues.books import Books
from aliquot_scheduler.queues.cards import Cards, Stock
from aliquot_scheduler.queues.clearings import OVERDUE, Clearing, Clearings, GpuKey, longest_grace
from aliquot_scheduler.queues.ledger import Charge
from aliquot_scheduler.queues.line import Candidate, Waiter
from aliquot_scheduler.queues.rules import Rules
from aliquot_scheduler.reclaim.policy import NEVER, Policy
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Rights, owner_of
from aliquot_scheduler.reclaim.scene import Scene
from aliquot_scheduler.reclaim.search import Bounds, Search
from aliquot_scheduler.reclaim.trying import Option

# A group that has to lie together is tried on so many nodes.
_MOST_NODES = 32


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """What there will be in stock."""

    there: Stock

    def stock(self) -> Stock:
        """It."""
        return self.there


class Planner:
    """One look at everything."""

    def __init__(
        self, *, picture: Picture, cards: Cards, books: Books, clearings: Clearings, residents: Residents, now: float
    ) -> None:
        self._picture = picture
        self._cards = cards
        self._books = books
        self._clearings = clearings
        self._residents = residents
        self._now = now
        self._scene = Scene(picture=picture, leaving=residents.leaving.values())
        self._bounds: Bounds = {}
        stock = cards.stock()
        self._capacity, self._free = stock.capacity, list(stock.free)
        self._charged: list[str] = []
        self._released: dict[str, Charge] = {}

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """While all is judged as it will be; what clearings were made meanwhile counts to the end."""
        ledger = self._books.ledger
        try:
            for one in self._residents.leaving.values():
                self._release(one)
            for clearing in self._clearings:
                for place in clearing.places:
                    self._charge(place.waiter)
            yield
        finally:
            for uid in self._charged:
                ledger.release(uid)
            for uid, charge in self._released.items():
                ledger.charge(uid, charge)

    def plan(self, candidate: Candidate, *, policy: Policy) -> Clearing | None:
        """Room for a candidate, and whoever has to go for it; None if none can be made."""
        for rights in self._rights(candidate, policy):
            search = Search(scene=self._scene, residents=self._residents, rights=rights, known=self._bounds)
            if self._relieved(search, candidate) and self._settled(search, candidate):
                self._spare(search, candidate)
                if clearing := self._judged(search, candidate, rights):
                    return clearing
            for one in search.victims.values():
                self._charge_again(one)
            search.undo()
            # Nodes that were out of the question for it need not be for the next.
            self._bounds.clear()
        return None

    def _rights(self, candidate: Candidate, policy: Policy) -> Iterator[Rights]:
        """As an owner first: what was lent is nearer than what the queue's own pods have."""
        ledger = self._books.ledger
        if policy.reclaims and (owners := owner_of(candidate, ledger=ledger)):
            yield Rights(ledger=ledger, candidate=candidate, owners=owners)
        if policy.within_queue != NEVER:
            yield Rights(ledger=ledger, candidate=candidate, within=policy.within_queue)

    def _relieved(self, search: Search, candidate: Candidate) -> bool:
        """Whether limits leave enough for it, with whom it takes for that: those who use what they leave."""
        ledger, enough = self._books.ledger, True
        while enough and (over := ledger.over(candidate.first.queue, candidate.amounts)) is not None:
            account, dimension = over
            unit = search.send_from(account.node.name, dimension=dimension, tree=ledger.tree)
            enough = bool(unit)
            for one in unit:
                self._release(one)
        # By rights whoever is taken is counted already.
        for one in search.victims.values():
            self._charge_again(one)
        return enough

    def _spare(self, search: Search, candidate: Candidate) -> None:
        """Let everybody stay whom neither cards nor limits want gone."""
        for one in search.victims.values():
            self._release(one)

        def may_stay(one: Resident) -> bool:
            self._charge_again(one)
            if self._books.ledger.over(candidate.first.queue, candidate.amounts) is None:
                return True
            self._release(one)
            return False

        search.spare(may_stay)

    # --- places ------------------------------------------------------------------------------------------------------
    def _settled(self, search: Search, candidate: Candidate) -> bool:
        """A place for each of them, or for none."""
        first = candidate.first
        ground = self._cards.ground
        able = self._cards.able(first.demand) & ground.suits(first.shape.host) & self._picture.grid.bindable
        able = self._cards.ruled.all_admitted(((one.pod, one.demand) for one in candidate.members), among=able)
        match candidate.topology:
            case Topology.NODE | Topology.NVLINK:
                return self._settled_together(search, candidate, able)
            case Topology.SPREAD:
                return self._settled_apart(search, candidate, able)
        return all(search.settle(member, able=able) for member in candidate.members)

    def _settled_apart(self, search: Search, candidate: Candidate, able: Bools) -> bool:
        taken = {node for node, _ in self._of_mates(candidate)}
        for member in candidate.members:
            if not search.settle(member, able=able, but=taken):
                return False
            taken.add(search.places[-1].node)
        return True

    def _settled_together(self, search: Search, candidate: Candidate, able: Bools) -> bool:
        """On one node, or one island of it: the least harm of those that were tried."""
        best: tuple[int, list[Option]] | None = None
        tried = 0
        for known, gpus in self._spots(candidate, able):
            if tried >= _MOST_NODES or (best is not None and best[0] == 0):
                break
            found = search.together(candidate.members, known, only=gpus)
            if found is not None:
                tried += 1
                harm = sum(option.harm for option in found)
                best = min(best or (harm, found), (harm, found), key=lambda one: one[0])
        for option in best[1] if best else ():
            search.take(option)
        return best is not None

    def _spots(self, candidate: Candidate, able: Bools) -> Iterator[tuple[KnownNode, tuple[str, ...]]]:
        mates = self._of_mates(candidate)
        only = {node for node, _ in mates}
        for name in sorted(only or self._picture.nodes):
            known = self._picture.nodes.get(name)
            if known is None or not able[known.row]:
                continue
            if candidate.topology is Topology.NODE:
                yield known, ()
                continue
            for island in islands(known.inventory.gpus):
                if {gpu for _, gpu in mates} <= set(island):
                    yield known, island

    def _of_mates(self, candidate: Candidate) -> set[GpuKey]:
        gang = candidate.first.gang
        uids = sorted(self._books.let_in.get(gang, ())) if gang else []
        return {gpu for uid in uids for gpu in self._picture.holdings.of(uid)}

    # --- what is supposed --------------------------------------------------------------------------------------------
    def _judged(self, search: Search, candidate: Candidate, rights: Rights) -> Clearing | None:
        """The clearing, if it would be let in once they have gone; then it counts for those who come after it."""
        victims = list(search.victims.values())
        if not rights.hold_good(victims):
            return None
        stock = Foreseen(there=Stock(capacity=self._capacity, free=tuple(self._free)))
        if Rules(ledger=self._books.ledger, cards=stock).refusal(candidate) is not None:
            return None
        for member in candidate.members:
            self._charge(member)
        return self._clearing(search, candidate)

    def _clearing(self, search: Search, candidate: Candidate) -> Clearing:
        going = [*search.victims.values(), *self._residents.leaving.values()]
        return Clearing(
            candidate=candidate,
            places=tuple(search.places),
            victims=tuple(one.waiter for one in sorted(search.victims.values(), key=lambda one: (one.lost, one.uid))),
            until=self._now + longest_grace(one.waiter for one in going) + OVERDUE,
        )

    def has_to_wait(self, clearing: Clearing) -> bool:
        """Whether somebody has to go for it, or goes already; else a turn is all that it needs."""
        leaving = {gpu for one in self._residents.leaving.values() for gpu in one.claims}
        if clearing.victims or any(gpu in leaving for place in clearing.places for gpu in place.room):
            return True
        return any(self._lacks_now(node, clearing) for node in {node for node, _ in leaving})

    def _lacks_now(self, node: str, clearing: Clearing) -> bool:
        """Whether a node has less CPU or memory than those ask who come to it, as long as nobody has left."""
        asked = [(*place.waiter.shape.host.amounts, 1) for place in clearing.places if place.node == node]
        free = self._picture.hosts.free[self._picture.nodes[node].row].tolist() if asked else []
        return any(sum(column) > there for column, there in zip(zip(*asked, strict=True), free, strict=False))

    def _release(self, one: Resident) -> None:
        charge = self._books.ledger.of(one.uid)
        if charge is not None:
            self._released[one.uid] = charge
            self._books.ledger.release(one.uid)
            self._count(charge.amounts, sign=+1)

    def _charge_again(self, one: Resident) -> None:
        if (charge := self._released.pop(one.uid, None)) is not None:
            self._books.ledger.charge(one.uid, charge)
            self._count(charge.amounts, sign=-1)

    def _charge(self, waiter: Waiter) -> None:
        charge = Charge(queue=waiter.queue, amounts=waiter.amounts, firm=waiter.shape.firm)
        self._charged.append(waiter.uid)
        self._books.ledger.charge(waiter.uid, charge)
        self._count(charge.amounts, sign=-1)

    def _count(self, amounts: Sequence[int], *, sign: int) -> None:
        for dimension in range(len(self._free)):
            self._free[dimension] += sign * amounts[dimension]
