"""Who could be moved so that one that waits has room, or off a card that is degraded: each to a place that is free.

Theory of operation. Places are searched as for those for whom others have to go (`search.py`), with everybody who may
be moved as a victim; then for each of them a place is searched for which nobody goes. If one finds none, nothing of it
is done, and the next node is tried. So all who go are placed again in the same plan, on real cards, and beside the one
for whom they go.

What must always hold: nobody is moved for whom no place was found; no two are given the same room; nobody is moved to a
degraded GPU, or whose successor the rules would not let in; the same state gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf

import msgspec
import numpy as np

from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.letting_in.register import Register
from aliquot_scheduler.queues.room.clearings import GpuKey, Place, longest_grace
from aliquot_scheduler.queues.room.graces import OVERDUE
from aliquot_scheduler.queues.waiting.waiter import Candidate, Waiter
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.returning import Going, Returning
from aliquot_scheduler.reclaim.scene import Scene, failing_gpus
from aliquot_scheduler.reclaim.search import Bounds, Search

# So many nodes are tried for one that waits: those come first where least is lost.
_MOST_NODES = 8


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Who lies where now, and where it is to lie."""

    who: Resident
    to: Place


class MovePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the one lies who waits, and who is moved for it."""

    place: Place
    moves: tuple[Move, ...]


class _AllOrNobody:
    """Rights by which all who are there may be taken: whoever may not be moved is not among them."""

    key = ()
    by_priority = False

    def may_take(self, one: Resident) -> bool:
        """It is there, so it may."""
        del one
        return True

    def take(self, one: Resident, *, sign: int = 1) -> None:
        """Nothing is counted."""


class Mover:
    """One look at everything."""

    def __init__(
        self,
        *,
        picture: Picture,
        cards: Cards,
        residents: Residents,
        returning: Returning,
        shut: Collection[GpuKey] = frozenset(),
    ) -> None:
        """`residents` are those who may be moved, and to none of the GPUs of `shut`."""
        self._picture = picture
        self._cards = cards
        self._residents = residents
        self._returning = returning
        self._scene = Scene(picture=picture, leaving=residents.leaving.values(), only_healthy=True, shut=shut)
        self._open = self._rows_but(shut)
        self._nobody = Residents([], gangs={}, leaving=residents.leaving.values())
        self._free = self._free_percent()
        self._failing = failing_gpus(picture)

    def plan(self, candidate: Candidate, *, most: int, pays: float) -> MovePlan | float:
        """Room for one pod, with at most so many moved for it and at most so much lost; or what the least would lose.

        Nodes come by what is lost there, so once that is too much none that comes later has to be looked at.
        """
        waiter = candidate.first
        # Whoever goes comes again, so it needs what is free now: in a full cluster that is the usual answer.
        if sum(piece.compute for piece in waiter.demand.pieces or ()) > self._free:
            return inf
        able, tried = self._able(waiter), set[str]()
        known: Bounds = {}
        for _ in range(_MOST_NODES):
            search = Search(scene=self._scene, residents=self._residents, rights=_AllOrNobody(), known=known)
            if not search.settle(waiter, able=able, but=tried):
                break
            (place,) = search.places
            lost = sum(one.lost for one in search.victims.values())
            moves = self._moves(search.victims) if 0 < len(search.victims) <= most and lost <= pays else None
            search.undo()
            if moves is not None and self._returning.let_in(_going(moves), beside=place):
                return MovePlan(place=place, moves=moves)
            if lost > pays:
                return lost
            tried.add(place.node)
        return inf

    def off_failing(self, *, most: int, may_go: Callable[[Resident], bool]) -> list[Move]:
        """Those who lie on GPUs that fail and have a place elsewhere, least harm first."""
        found: list[Move] = []
        there = [one for one in self._residents.by_uid.values() if self._failing & one.claims.keys() and may_go(one)]
        for one in sorted(there, key=lambda one: (one.lost, one.uid)):
            if len(found) >= most:
                break
            if not self._residents.let_go({*(move.who.uid for move in found), one.uid}):
                continue
            self._scene.goes(one)
            moves = self._moves({one.uid: one}) or ()
            # Each the last beside those before it.
            if moves and self._returning.let_in(_going([*found, *moves]), sound=True):
                self._scene.comes(moves[0].to)
                found += moves
            else:
                self._scene.stays(one)
        for move in found:
            self._scene.leaves(move.to)
            self._scene.stays(move.who)
        return found

    def why_not_moved(self, one: Resident) -> str:
        """Why one that may be moved stays on a GPU that fails."""
        self._scene.goes(one)
        going = _going(self._moves({one.uid: one}) or ())
        self._scene.stays(one)
        if not self._returning.lets_in_any_of(one.queue) or (going and not self._returning.let_in(going)):
            return "its queue would not let in who comes in its place"
        if not going:
            return "no healthy GPU has room for it now"
        if not self._returning.let_in(going, sound=True):
            return "what is free of healthy GPUs is demanded by, or kept for, others who are guaranteed it"
        return ""

    def all_of(self, there: Sequence[Resident]) -> tuple[Move, ...]:
        """A place for each of these, in their order; nobody's if one has none."""
        for one in there:
            self._scene.goes(one)
        moves = self._moves({one.uid: one for one in there}) or ()
        for one in there:
            self._scene.stays(one)
        if not moves or not self._returning.let_in(_going(moves)):
            return ()
        by_uid = {move.who.uid: move for move in moves}
        return tuple(by_uid[one.uid] for one in there)

    def _moves(self, victims: Mapping[str, Resident]) -> tuple[Move, ...] | None:
        """A place for each, for which nobody goes; None if one has none. Nothing is supposed any more afterwards."""
        search = Search(scene=self._scene, residents=self._nobody, rights=_AllOrNobody(), known={})
        # The large before the small: for them there are fewer places.
        line = sorted(victims.values(), key=lambda one: (-sum(one.amounts[:1]), -one.lost, one.uid))
        found = all(search.settle(one.waiter, able=self._able(one.waiter)) for one in line)
        moves = tuple(Move(who=one, to=place) for one, place in zip(line, search.places, strict=False))
        search.undo()
        return moves if found else None

    def _free_percent(self) -> int:
        """Of all healthy cards, once those have left who leave: no less than there is."""
        grid = self._picture.grid
        there = grid.open & ~grid.degraded & grid.bindable[:, np.newaxis]
        leaving = (claim.compute.value for one in self._residents.leaving.values() for claim in one.claims.values())
        return int(grid.compute[there].sum()) + sum(leaving)

    def _able(self, waiter: Waiter) -> Bools:
        able = self._cards.able(waiter.demand) & self._cards.ground.suits(waiter.shape.host) & self._open
        return self._cards.ruled.all_admitted([(waiter.pod, waiter.demand)], among=able & self._picture.grid.bindable)

    def _rows_but(self, shut: Collection[GpuKey]) -> Bools:
        """Nodes with GPUs that are not shut: of a thousand all but a few may be."""
        grid = self._picture.grid
        rooms = grid.open & ~grid.degraded
        for node, gpu in shut:
            known = self._picture.nodes[node]
            if gpu in known.columns:
                rooms[known.row, known.columns[gpu]] = False
        return np.asarray(rooms.any(axis=1))


def _going(moves: Sequence[Move]) -> list[Going]:
    return [(move.who, move.to) for move in moves]


def keep_room(moves: Sequence[Move], *, register: Register, why: str, now: float, together: str = "") -> None:
    """For whoever comes in the place of those who go for nobody; all go or none where they go `together` for an end."""
    grace = longest_grace((move.who.waiter for move in moves), most=register.clearings.max_grace)
    until = now + grace + 2 * OVERDUE
    register.refuges.open((move.to for move in moves), until=until, drains=why, whose=together)
