"""What a pod would cost on each node at the least: of all nodes at once, so that few are looked at closely.

Somebody who lies on several cards of a node is counted on each with that part of the harm, so that no sum over a
node's cards is more than what is really lost there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aliquot_core.claims import Claim
from aliquot_scheduler.fit.demand import Demand, Piece, pieces_of
from aliquot_scheduler.fit.places import allowed_places, needed_memory
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.queues.said.tree import Vector
from aliquot_scheduler.reclaim.residents import Resident, Residents
from aliquot_scheduler.reclaim.rights import Taking
from aliquot_scheduler.reclaim.scene import Scene

Harms = npt.NDArray[np.int64]
# More than any harm; eight of them can be added.
_NEVER = np.int64(2**59)


class _Held(NamedTuple):
    """What many pods hold, a line for each GPU of each: by row and column, and by which of them it is."""

    at: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    claims: Sequence[Claim]
    whose: Sequence[Resident]


class _Cards:
    """By row and column: what there is once all leave who do, and what more if all go who may."""

    def __init__(self, scene: Scene) -> None:
        grid = scene.picture.grid
        self._scene = scene
        self.compute = grid.compute.astype(np.int64)
        self.memory = grid.memory.astype(np.int64)
        self.holders = grid.holders.astype(np.int64)
        self.closed = grid.closed.copy()
        self.sum = np.zeros(grid.open.shape, dtype=np.int64)
        self.least = np.full(grid.open.shape, _NEVER, dtype=np.int64)

    def without(self, held: _Held) -> None:
        """These are gone."""
        at, claims = held.at, held.claims
        np.add.at(self.compute, at, [claim.compute.value for claim in claims])
        np.add.at(self.memory, at, [claim.memory.value for claim in claims])
        np.subtract.at(self.holders, at, 1)
        np.logical_and.at(self.closed, at, [not claim.closes for claim in claims])

    def costing(self, held: _Held, *, by_priority: bool) -> None:
        """These may go."""
        harms = [one.harm(by_priority=by_priority) // len(one.claims) for one in held.whose]
        np.add.at(self.sum, held.at, harms)
        np.minimum.at(self.least, held.at, harms)

    def room(self, piece: Piece, *, allowed: Bools) -> Bools:
        """Where a piece has room."""
        need = needed_memory(piece, grid=self._scene.picture.grid)
        room: Bools = allowed & ~self.closed & (self.compute >= piece.compute) & (self.memory >= need)
        return room & (self.holders <= 0) if piece.whole else room


def _held_by(there: Iterable[Resident], *, scene: Scene) -> _Held:
    nodes = scene.picture.nodes
    lines = [
        (known.row, known.columns[gpu], claim, one)
        for one in there
        for (node, gpu), claim in one.claims.items()
        if (known := nodes.get(node)) is not None and gpu in known.columns
    ]
    rows, columns = (np.array([line[axis] for line in lines], dtype=np.int64) for axis in (0, 1))
    return _Held(at=(rows, columns), claims=[line[2] for line in lines], whose=[line[3] for line in lines])


def bounds_of(demand: Demand, *, scene: Scene, residents: Residents, rights: Taking) -> Harms:
    """By row; -1 where it can't lie whoever goes."""
    grid = scene.picture.grid
    everybody = list(residents.by_uid.values())
    leaving = [*residents.leaving.values(), *(one for one in everybody if one.uid in scene.gone)]
    gone = _held_by(leaving, scene=scene)
    able = _held_by(_who_may_go((one for one in everybody if one.uid not in scene.gone), rights), scene=scene)
    now = _Cards(scene)
    now.without(gone)
    if_all_go = _Cards(scene)
    if_all_go.without(gone)
    if_all_go.without(able)
    now.costing(able, by_priority=rights.by_priority)
    allowed = allowed_places(demand.request, grid=grid)
    containers = [demand.pieces] if demand.pieces else [pieces_of(one) for one in demand.request.containers]
    bound: Harms = np.zeros(grid.rows, dtype=np.int64)
    possible = grid.bindable.copy()
    for pieces in containers:
        possible &= if_all_go.room(pieces[0], allowed=allowed).any(axis=1)
        possible &= if_all_go.room(pieces[-1], allowed=allowed).sum(axis=1) >= len(pieces)
    if demand.pieces:
        bound = _bound(demand.pieces, now=now, if_all_go=if_all_go, allowed=allowed)
    bound[~possible] = -1
    return bound


def _who_may_go(there: Iterable[Resident], rights: Taking) -> Iterator[Resident]:
    """Of pods in no group that are alike in all that rights look at the first is asked about: there are thousands."""
    told: dict[tuple[str, str, int, Vector], bool] = {}
    for one in there:
        if one.waiter.gang is not None:
            if rights.may_take(one):
                yield one
            continue
        alike = one.queue, one.waiter.user, one.waiter.priority, one.amounts
        if alike not in told:
            told[alike] = rights.may_take(one)
        if told[alike]:
            yield one


def _bound(pieces: Sequence[Piece], *, now: _Cards, if_all_go: _Cards, allowed: Bools) -> Harms:
    """The cards where least is lost: each piece needs one, and none is smaller than the last."""
    piece = pieces[-1]
    lost = now.sum if piece.whole else now.least
    cost = np.where(if_all_go.room(piece, allowed=allowed), lost, _NEVER)
    cost[now.room(piece, allowed=allowed)] = 0
    cheapest = np.partition(cost, min(len(pieces), cost.shape[1]) - 1, axis=1)[:, : len(pieces)]
    total: Harms = np.minimum(cheapest, _NEVER).sum(axis=1)
    return np.minimum(total, 2**62)
