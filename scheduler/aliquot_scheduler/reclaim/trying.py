"""One pod on one node: who has to go so that it fits, card by card.

Of those who may go the least harmful is taken first until a piece fits; then each is tried for sparing, the most
harmful first. Where the node's CPU or memory lacks then, more of those who lie there go in the same way. Of a gang that
has nobody to spare all go; what they leave elsewhere costs nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu
from aliquot_scheduler.fit.demand import Piece
from aliquot_scheduler.fit.layout import Plan, lay_out
from aliquot_scheduler.fit.left import Left
from aliquot_scheduler.fit.modes import modes_of, sharing
from aliquot_scheduler.picture.picture import KnownNode
from aliquot_scheduler.queues.room.clearings import GpuKey, Place
from aliquot_scheduler.queues.waiting.waiter import Waiter
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Taking
from aliquot_scheduler.reclaim.scene import Scene


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One pod on one node: who would go, and what that costs."""

    harm: int
    victims: tuple[Resident, ...]
    place: Place


class Trying:
    """Tries in one scene, by one candidate's rights; what is tried is undone."""

    def __init__(self, *, scene: Scene, residents: Residents, rights: Taking) -> None:
        self._scene = scene
        self._residents = residents
        self._rights = rights

    def runs(self, one: Resident) -> bool:
        """Whether it may stay by itself with what is left of its gang: that runs with its minimum, or not at all."""
        gang, group = one.waiter.gang, one.waiter.group
        if gang is None or group is None:
            return True
        everybody = self._residents.gangs.get(gang, frozenset())
        return len(everybody - self._scene.gone) >= min(group.minimum, len(everybody))

    # --- one pod on one node -----------------------------------------------------------------------------------------
    def option(self, waiter: Waiter, known: KnownNode, *, only: Sequence[str] = ()) -> Option | None:
        """Who would have to go for it; nothing is supposed any more afterwards."""
        cards = self._scene.cards(known, waiter.demand, only=only)
        taken: list[Resident] = []
        try:
            pieces, gpus = waiter.demand.pieces, [gpu for _, gpu in cards]
            if pieces is None:
                plan = self._by_trial(waiter, known, gpus, taken)
                claims = plan.claims if plan else None
            else:
                claims = self._in_a_mode(waiter, known, cards, taken)
            if claims is None or not self._host_freed(waiter, known, taken):
                return None
            place = Place(waiter=waiter, node=known.name, claims=claims, gpus=tuple(only))
            return Option(harm=sum(map(self.harm, taken)), victims=tuple(taken), place=place)
        finally:
            for one in reversed(taken):
                self.stay(one)

    def _laid(self, waiter: Waiter, known: KnownNode, gpus: Iterable[Gpu]) -> Plan | None:
        """By the code that will lay it out when it is let in."""
        cards = [self._scene.card(known, gpu) for gpu in gpus]
        return lay_out(waiter.pod, waiter.demand, node=known.name, cards=cards)

    def _in_a_mode(
        self, waiter: Waiter, known: KnownNode, cards: Sequence[tuple[int, Gpu]], taken: list[Resident]
    ) -> dict[str, Claim] | None:
        """Of the sets of GPUs that one container may have the one where least is lost."""
        pieces, best, least = waiter.demand.pieces or (), None, list[Resident]()
        sets = sharing([gpu.isolation for _, gpu in cards], modes_of(waiter.demand.request))
        if len(sets) == 1:
            return self._chosen(pieces, known, cards, taken)
        for own in sets:
            found = self._chosen(pieces, known, [cards[at] for at in own], taken)
            if found is not None and (best is None or sum(map(self.harm, taken)) < sum(map(self.harm, least))):
                best, least = found, list(taken)
            self.stay_together(reversed(taken))
            taken.clear()
        self.go_together(least)
        taken += least
        return best

    def _chosen(
        self, pieces: Sequence[Piece], known: KnownNode, cards: Sequence[tuple[int, Gpu]], taken: list[Resident]
    ) -> dict[str, Claim] | None:
        """A GPU for each piece, the largest first; or found in another way (`_other_ways`), where that loses less."""
        best, least = self._in_turn(pieces, known, cards, taken), list(taken)
        for order, by_part in self._other_ways(pieces, known, cards) if taken else ():
            self.stay_together(reversed(taken))
            taken.clear()
            other = self._in_turn(order, known, cards, taken, by_part=by_part)
            if other is not None and (best is None or sum(map(self.harm, taken)) < sum(map(self.harm, least))):
                best, least = other, list(taken)
        self.stay_together(reversed(taken))
        self.go_together(least)
        taken[:] = least
        return best

    def _other_ways(
        self, pieces: Sequence[Piece], known: KnownNode, cards: Sequence[tuple[int, Gpu]]
    ) -> Iterator[tuple[Sequence[Piece], bool]]:
        """The largest last: so it takes no half free card. By part: who leaves several cards is no dearer for it."""
        differ = pieces[0] != pieces[-1]
        if differ:
            yield pieces[::-1], False
        on = self._residents.on
        if len(pieces) > 1 and any(
            len(one.claims) > 1 for _, gpu in cards for one in on.get((known.name, gpu.uuid), ())
        ):
            yield pieces, True
            if differ:
                yield pieces[::-1], True

    def _in_turn(
        self,
        pieces: Sequence[Piece],
        known: KnownNode,
        cards: Sequence[tuple[int, Gpu]],
        taken: list[Resident],
        *,
        by_part: bool = False,
    ) -> dict[str, Claim] | None:
        """Each time the one where least harm is done, or its part of that; what is taken of each."""
        left, chosen = list(cards), dict[str, Claim]()
        for piece in pieces:
            best: tuple[int, int, Gpu] | None = None
            victims: list[Resident] = []
            for column, gpu in left:
                found = self._freed(piece, known, gpu)
                if found is None:
                    continue
                harm = sum(self.harm(one) // len(one.claims) for one in found[1]) if by_part else found[0]
                if best is None or (harm, column) < best[:2]:
                    best, victims = (harm, column, gpu), found[1]
                if best[0] == 0:
                    break
            if best is None:
                return None
            for one in victims:
                self.go(one)
            taken += victims
            chosen[best[2].uuid] = piece.claim_on(best[2])
            left.remove((best[1], best[2]))
        return chosen

    def _freed(self, piece: Piece, known: KnownNode, gpu: Gpu) -> tuple[int, list[Resident]] | None:
        """Who goes so that the piece fits on this GPU, and what it costs; None if it can't be had."""
        if self._left((known.name, gpu.uuid), gpu).takes(piece):
            return 0, []
        found = self._one_by_one(piece, known, gpu)
        # All go who lie on a whole GPU, whoever they are.
        if found is None or piece.whole or len(found[1]) == 1:
            return found
        return self._alone(piece, known, gpu, less=found[0]) or found

    def _alone(self, piece: Piece, known: KnownNode, gpu: Gpu, *, less: int) -> tuple[int, list[Resident]] | None:
        """Who leaves enough by itself at less harm: many small and old ones may lose more than one large and young."""
        key = known.name, gpu.uuid
        for one in self.by_harm(self._residents.on.get(key, ())):
            if not (unit := self.take_with_it(one)):
                continue
            harm, enough = sum(map(self.harm, unit)), self._left(key, gpu).takes(piece)
            self.stay_together(unit)
            if enough or harm >= less:
                return (harm, unit) if harm < less else None
        return None

    def _one_by_one(self, piece: Piece, known: KnownNode, gpu: Gpu) -> tuple[int, list[Resident]] | None:
        """The least harmful first, until it fits; then whoever need not go is spared."""
        key = known.name, gpu.uuid
        taken: list[Resident] = []
        units: list[list[Resident]] = []
        try:
            for one in self.by_harm(self._residents.on.get(key, ())):
                unit = self.take_with_it(one)
                if unit:
                    units.append(unit)
                    taken += unit
                    if self._left(key, gpu).takes(piece):
                        break
            else:
                return None
            self._fill_back(piece, units, taken, known=known, gpu=gpu)
            return sum(map(self.harm, taken)), list(taken)
        finally:
            for one in reversed(taken):
                self.stay(one)

    def _left(self, key: GpuKey, gpu: Gpu) -> Left:
        return self._scene.left(key, compute=gpu.compute.value, usable=gpu.usable.value)

    def _fill_back(
        self, piece: Piece, units: list[list[Resident]], taken: list[Resident], *, known: KnownNode, gpu: Gpu
    ) -> None:
        """Spare whoever need not go, the most harmful first."""
        key = known.name, gpu.uuid
        for unit in sorted(units[:-1], key=lambda unit: -sum(map(self.harm, unit))):
            self.stay_together(unit)
            if self.runs(unit[0]) and self._left(key, gpu).takes(piece):
                taken[:] = [one for one in taken if one not in unit]
            else:
                self.go_together(unit)

    def _by_trial(self, waiter: Waiter, known: KnownNode, gpus: Sequence[Gpu], taken: list[Resident]) -> Plan | None:
        """Pods of several containers: one after the other goes until all of it can be laid out."""
        plan = self._laid(waiter, known, gpus)
        there = {one.uid: one for gpu in gpus for one in self._residents.on.get((known.name, gpu.uuid), ())}
        for one in self.by_harm(there.values()):
            if plan is not None:
                break
            if unit := self.take_with_it(one):
                taken += unit
                plan = self._laid(waiter, known, gpus)
        for one in sorted(taken, key=lambda one: -self.harm(one)) if plan else ():
            self.stay(one)
            without = self._laid(waiter, known, gpus) if self.runs(one) else None
            if without is None:
                self.go(one)
            else:
                taken.remove(one)
                plan = without
        return plan

    def _host_freed(self, waiter: Waiter, known: KnownNode, taken: list[Resident]) -> bool:
        """Whether the node has its CPU and memory for the pod, with those gone who lie there beside its cards."""
        more: list[Resident] = []
        there = {one.uid: one for gpu in known.columns for one in self._residents.on.get((known.name, gpu), ())}
        line = iter(() if self._scene.host_takes(known, waiter) else self.by_harm(there.values()))
        while not self._scene.host_takes(known, waiter):
            if (one := next(line, None)) is None:
                taken += more
                return False
            more += self.take_with_it(one)
        for one in sorted(more, key=lambda one: -self.harm(one)):
            self.stay(one)
            if self.runs(one) and self._scene.host_takes(known, waiter):
                more.remove(one)
            else:
                self.go(one)
        taken += more
        return True

    # --- who goes ----------------------------------------------------------------------------------------------------
    def by_harm(self, there: Iterable[Resident]) -> list[Resident]:
        """Those who may go, the least harmful first."""
        gone = self._scene.gone
        return self.in_order(one for one in there if one.uid not in gone and self._rights.may_take(one))

    def in_order(self, there: Iterable[Resident]) -> list[Resident]:
        """The least harmful first, by whatever right they may go; who takes a gang along is as harmful as all of it."""
        gone, able = self._scene.gone, []
        for one in there:
            unit = self._residents.with_it(one, gone=gone)
            if unit is not None:
                able.append((sum(map(self.harm, unit)), one.uid, one))
        return [one for _, _, one in sorted(able, key=lambda each: each[:2])]

    def take_with_it(self, one: Resident) -> list[Resident]:
        """Let it go with all who go with it; nobody if not all of them may."""
        if one.uid in self._scene.gone:
            return []
        unit = self._residents.with_it(one, gone=self._scene.gone) or []
        taken: list[Resident] = []
        for each in unit:
            if not self._rights.may_take(each):
                break
            self.go(each)
            taken.append(each)
        if len(taken) == len(unit) and self._residents.let_go(self._scene.gone):
            return taken
        for each in reversed(taken):
            self.stay(each)
        return []

    def harm(self, one: Resident) -> int:
        """What it costs to send it away, by the rule that is followed."""
        return one.harm(by_priority=self._rights.by_priority)

    def go(self, one: Resident) -> None:
        """Suppose that it is gone."""
        self._scene.goes(one)
        self._rights.take(one)

    def stay(self, one: Resident) -> None:
        """Suppose so no more."""
        self._scene.stays(one)
        self._rights.take(one, sign=-1)

    def go_together(self, unit: Iterable[Resident]) -> None:
        """Suppose that all of them are gone."""
        for one in unit:
            self.go(one)

    def stay_together(self, unit: Iterable[Resident]) -> None:
        """Suppose so of none of them any more."""
        for one in unit:
            self.stay(one)
