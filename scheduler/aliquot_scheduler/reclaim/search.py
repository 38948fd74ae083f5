"""Places for pods at the least harm: which node for each, and who of it has to go.

Theory of operation. For each shape a bound is worked out for all nodes at once: no node can cost less, since on each of
so many cards somebody of those who may go must. Nodes are then looked at closely from the smallest bound up, until
the cheapest that was looked at is no dearer than the next bound: a few nodes of 1,000 for each pod. To look closely is
to take, card by card, the least harmful first until the piece fits, and then to try to spare each of them again, the
most harmful first. Of a gang that has nobody to spare all go; what they leave elsewhere costs nothing more.

What must always hold: nobody is taken who may not be (`rights.py`, budgets); what was found fits, with all who go
away and nobody else; the same scene gives the same answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.fit.demand import Piece
from aliquot_scheduler.fit.layout import Plan, lay_out
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import KnownNode
from aliquot_scheduler.queues.clearings import Place
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.tree import Tree
from aliquot_scheduler.reclaim.bounds import bounds_of
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Rights
from aliquot_scheduler.reclaim.scene import Scene

# Of pods whose containers have to be tried out (0.5 ms each), so many nodes are.
_MOST_TRIES = 64

# By shape and rights: what nodes cost at the least, the cheapest first; a node may be there more than once.
Bounds = dict[tuple[int, Any], list[tuple[int, str]]]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One pod on one node: who would go, and what that costs."""

    harm: int
    victims: tuple[Resident, ...]
    place: Place


class Search:
    """For one candidate."""

    def __init__(self, *, scene: Scene, residents: Residents, rights: Rights, known: Bounds) -> None:
        """`known` are the bounds of those before it, as far as the same was asked by the same rights."""
        self.scene = scene
        self._residents = residents
        self._rights = rights
        self.victims: dict[str, Resident] = {}
        self.places: list[Place] = []
        self._known = known

    def send_from(self, queue: str, *, dimension: int, tree: Tree) -> list[Resident]:
        """Who goes with least harm of those that use something of a queue's limit; nobody if nobody may."""
        using = [
            one for one in self._residents.by_uid.values() if one.amounts[dimension] and queue in tree.path(one.queue)
        ]
        unit = next((unit for one in self._by_harm(using) if (unit := self._take_with_it(one))), [])
        self.victims |= {one.uid: one for one in unit}
        self._look_again((), unit)
        return unit

    # --- one after the other -----------------------------------------------------------------------------------------
    def settle(self, waiter: Waiter, *, able: Bools, but: Collection[str] = ()) -> bool:
        """Find the cheapest place for one more pod, on rows that are `able`, and suppose that it lies there."""
        heap = self._heap(waiter, able)
        best: Option | None = None
        for tries, (bound, name) in enumerate(self._pops(heap, but=but)):
            if best is not None and (best.harm <= bound or (waiter.demand.pieces is None and tries > _MOST_TRIES)):
                heapq.heappush(heap, (bound, name))
                break
            option = self.option(waiter, self.scene.picture.nodes[name])
            if option is None:
                continue
            if best is None or option.harm < best.harm:
                if best is not None:
                    heapq.heappush(heap, (best.harm, best.place.node))
                best = option
            else:
                heapq.heappush(heap, (option.harm, name))
        if best is None:
            return False
        self.take(best)
        return True

    def _pops(self, heap: list[tuple[int, str]], *, but: Collection[str]) -> Iterable[tuple[int, str]]:
        put_off = []
        try:
            while heap:
                bound, name = heapq.heappop(heap)
                if name in but:
                    put_off.append((bound, name))
                else:
                    yield bound, name
        finally:
            for entry in put_off:
                heapq.heappush(heap, entry)

    def _heap(self, waiter: Waiter, able: Bools) -> list[tuple[int, str]]:
        key = waiter.number, self._rights.key
        if key not in self._known:
            bounds = bounds_of(waiter.demand, scene=self.scene, residents=self._residents, rights=self._rights)
            nodes = self.scene.picture.nodes
            heap = [(bound, name) for name, known in nodes.items() if (bound := int(bounds[known.row])) >= 0]
            self._known[key] = [entry for entry in heap if able[nodes[entry[1]].row]]
            heapq.heapify(self._known[key])
        return self._known[key]

    def take(self, option: Option) -> None:
        """Suppose that it is so."""
        for one in option.victims:
            self._go(one)
            self.victims[one.uid] = one
        self.scene.comes(option.place)
        self.places.append(option.place)
        self._look_again([option.place], option.victims)

    def _look_again(self, places: Iterable[Place], victims: Iterable[Resident]) -> None:
        """At nodes where there may be more room now than was thought."""
        changed = {place.node for place in places}
        changed |= {node for one in victims for node, _ in one.claims}
        for heap in self._known.values():
            there = {name for bound, name in heap if not bound}
            for name in sorted(changed - there):
                heapq.heappush(heap, (0, name))

    def undo(self) -> None:
        """Suppose nothing of it any more."""
        self._look_again(self.places, self.victims.values())
        for place in self.places:
            self.scene.leaves(place)
        for one in self.victims.values():
            self._stay(one)
        self.places.clear()
        self.victims.clear()

    def together(
        self, waiters: Sequence[Waiter], known: KnownNode, *, only: tuple[str, ...] = ()
    ) -> list[Option] | None:
        """All of them on one node, or on some of its GPUs; nothing is supposed any more afterwards."""
        found: list[Option] = []
        for waiter in waiters:
            option = self.option(waiter, known, only=only)
            if option is None:
                break
            found.append(option)
            for one in option.victims:
                self._go(one)
            self.scene.comes(option.place)
        for option in reversed(found):
            self.scene.leaves(option.place)
            for one in reversed(option.victims):
                self._stay(one)
        return found if len(found) == len(waiters) else None

    def spare(self, may_stay: Callable[[Resident], bool]) -> None:
        """Let everybody stay who need not go after all, the most harmful first; `may_stay` says so of limits."""
        for one in sorted(self.victims.values(), key=lambda one: (-self._harm(one), one.uid)):
            if self._goes_alone(one) and self.scene.has_room_for(one) and may_stay(one):
                self._stay(one)
                del self.victims[one.uid]

    def _goes_alone(self, one: Resident) -> bool:
        """Whether it is no part of a gang that goes as a whole."""
        gang, group = one.waiter.gang, one.waiter.group
        if gang is None or group is None:
            return True
        left = self._residents.gangs.get(gang, frozenset()) - self.scene.gone
        return len(left) >= group.minimum

    # --- one pod on one node -----------------------------------------------------------------------------------------
    def option(self, waiter: Waiter, known: KnownNode, *, only: Sequence[str] = ()) -> Option | None:
        """Who would have to go for it; nothing is supposed any more afterwards."""
        cards = self.scene.cards(known, waiter.demand, only=only)
        taken: list[Resident] = []
        try:
            pieces, gpus = waiter.demand.pieces, [gpu for _, gpu in cards]
            if pieces is None:
                plan = self._by_trial(waiter, known, gpus, taken)
                claims = plan.claims if plan else None
            else:
                claims = self._chosen(pieces, known, cards, taken)
            if claims is None or not self.scene.host_takes(known, waiter):
                return None
            place = Place(waiter=waiter, node=known.name, claims=claims, gpus=tuple(only))
            return Option(harm=sum(map(self._harm, taken)), victims=tuple(taken), place=place)
        finally:
            for one in reversed(taken):
                self._stay(one)

    def _laid(self, waiter: Waiter, known: KnownNode, gpus: Iterable[Gpu]) -> Plan | None:
        """By the code that will lay it out when it is let in."""
        cards = [self.scene.card(known, gpu) for gpu in gpus]
        return lay_out(waiter.pod, waiter.demand, node=known.name, cards=cards)

    def _chosen(
        self, pieces: Sequence[Piece], known: KnownNode, cards: Sequence[tuple[int, Gpu]], taken: list[Resident]
    ) -> dict[str, Claim] | None:
        """A GPU for each piece, each time the one where least harm is done; what is taken of each."""
        left, chosen = list(cards), dict[str, Claim]()
        for piece in pieces:
            best: tuple[int, int, Gpu] | None = None
            victims: list[Resident] = []
            for column, gpu in left:
                found = self._freed(piece, known, gpu)
                if found is not None and (best is None or (found[0], column) < best[:2]):
                    best, victims = (found[0], column, gpu), found[1]
                if best is not None and best[0] == 0:
                    break
            if best is None:
                return None
            for one in victims:
                self._go(one)
            taken += victims
            chosen[best[2].uuid] = _claim(piece, best[2])
            left.remove((best[1], best[2]))
        return chosen

    def _freed(self, piece: Piece, known: KnownNode, gpu: Gpu) -> tuple[int, list[Resident]] | None:
        """Who goes so that the piece fits on this GPU, and what it costs; None if it can't be had."""
        key, scene = (known.name, gpu.uuid), self.scene
        if scene.left(key, usable=gpu.usable.value).takes(piece):
            return 0, []
        taken: list[Resident] = []
        units: list[list[Resident]] = []
        try:
            for one in self._by_harm(self._residents.on.get(key, ())):
                unit = self._take_with_it(one)
                if unit:
                    units.append(unit)
                    taken += unit
                    if scene.left(key, usable=gpu.usable.value).takes(piece):
                        break
            else:
                return None
            self._fill_back(piece, units, taken, known=known, gpu=gpu)
            return sum(map(self._harm, taken)), list(taken)
        finally:
            for one in reversed(taken):
                self._stay(one)

    def _fill_back(
        self, piece: Piece, units: list[list[Resident]], taken: list[Resident], *, known: KnownNode, gpu: Gpu
    ) -> None:
        """Spare whoever need not go, the most harmful first."""
        key = known.name, gpu.uuid
        for unit in sorted(units[:-1], key=lambda unit: -sum(map(self._harm, unit))):
            if len(unit) > 1:
                continue
            self._stay(unit[0])
            if self.scene.left(key, usable=gpu.usable.value).takes(piece):
                taken.remove(unit[0])
            else:
                self._go(unit[0])

    def _by_trial(self, waiter: Waiter, known: KnownNode, gpus: Sequence[Gpu], taken: list[Resident]) -> Plan | None:
        """Pods of several containers: one after the other goes until all of it can be laid out."""
        plan = self._laid(waiter, known, gpus)
        there = {one.uid: one for gpu in gpus for one in self._residents.on.get((known.name, gpu.uuid), ())}
        for one in self._by_harm(there.values()):
            if plan is not None:
                break
            if unit := self._take_with_it(one):
                taken += unit
                plan = self._laid(waiter, known, gpus)
        for one in sorted(taken, key=lambda one: -self._harm(one)) if plan else ():
            if not self._goes_alone(one):
                continue
            self._stay(one)
            without = self._laid(waiter, known, gpus)
            if without is None:
                self._go(one)
            else:
                taken.remove(one)
                plan = without
        return plan

    # --- who goes ----------------------------------------------------------------------------------------------------
    def _by_harm(self, there: Iterable[Resident]) -> list[Resident]:
        """Those who may go, the least harmful first; who takes a gang along is as harmful as all of it."""
        gone, able = self.scene.gone, []
        for one in there:
            if one.uid not in gone and self._rights.may_take(one):
                unit = self._residents.with_it(one, gone=gone)
                if unit is not None:
                    able.append((sum(map(self._harm, unit)), one.uid, one))
        return [one for _, _, one in sorted(able, key=lambda each: each[:2])]

    def _take_with_it(self, one: Resident) -> list[Resident]:
        """Let it go with all who go with it; nobody if not all of them may."""
        if one.uid in self.scene.gone:
            return []
        unit = self._residents.with_it(one, gone=self.scene.gone) or []
        taken: list[Resident] = []
        for each in unit:
            if not self._rights.may_take(each):
                break
            self._go(each)
            taken.append(each)
        if len(taken) == len(unit) and self._residents.let_go(self.scene.gone):
            return taken
        for each in reversed(taken):
            self._stay(each)
        return []

    def _harm(self, one: Resident) -> int:
        return one.harm(by_priority=self._rights.by_priority)

    def _go(self, one: Resident) -> None:
        self.scene.goes(one)
        self._rights.take(one)

    def _stay(self, one: Resident) -> None:
        self.scene.stays(one)
        self._rights.take(one, sign=-1)


def _claim(piece: Piece, gpu: Gpu) -> Claim:
    """What a piece takes of a GPU, as its grant will say."""
    memory = piece.memory_on(gpu.usable.value)
    return Claim(compute=Percent(piece.compute), memory=MiB(memory), closes=piece.whole)
