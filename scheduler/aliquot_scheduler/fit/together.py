"""Pods whose containers hold slices at the same time: which nodes are worth a trial, and which trials say the same.

Laying such a pod out on one node takes up to 0.5 ms, so on 1,000 nodes everybody else would wait half a second. Three
things are asked of all nodes at once instead. Any two pieces of different containers must find room, on one GPU or on
two: nodes that are full fail that. Where each piece finds room whatever GPUs the pieces before it were given, nothing
need be tried: pieces are laid one after another, and each takes any GPU with room. And of the rest, nodes whose GPUs
are in the same state give the same answer.

What must always hold: no node is left out that could take the pod; what fits surely, `layout` lays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from aliquot_core.quantities import WHOLE
from aliquot_core.request import Kind, PodRequest
from aliquot_scheduler.fit.demand import Piece, in_order, pieces_of
from aliquot_scheduler.fit.places import needed_memory, takes
from aliquot_scheduler.picture.grid import Bools, Cells, Rows

Levels = npt.NDArray[np.int64]


def may_fit(request: PodRequest, *, grid: Cells, allowed: Bools) -> Bools:
    """The rows where any two pieces that are held at the same time find room."""
    steady = [pieces_of(one) for one in request.containers if one.kind is not Kind.INIT]
    pairs = {(one, other) for first, second in combinations(steady, 2) for one in first for other in second}
    may = np.ones(grid.rows, dtype=np.bool_)
    for one, other in pairs:
        may &= _both(one, other, grid=grid, allowed=allowed)
    return may & _apart([piece for pieces in steady for piece in pieces], grid=grid, allowed=allowed)


def _apart(pieces: Sequence[Piece], *, grid: Cells, allowed: Bools) -> Bools:
    """The rows with a GPU for each of those pieces of which no two go on one: they are more than half of it."""
    large = sorted((piece for piece in pieces if 2 * piece.compute > WHOLE.value), key=lambda piece: -piece.compute)
    may, some = np.ones(grid.rows, dtype=np.bool_), np.zeros_like(allowed)
    for count, piece in enumerate(large, start=1):
        some |= takes(piece, grid=grid, allowed=allowed)
        may &= some.sum(axis=1) >= count
    return may


def surely_fits(request: PodRequest, *, grid: Cells, allowed: Bools) -> Bools:
    """The rows where the pod finds room in whatever way its containers are laid one after another."""
    if request.uuids.allowed or request.uuids.forbidden:
        return np.zeros(grid.rows, dtype=np.bool_)
    if not any(one.kind is Kind.INIT for one in request.containers):
        return _in_any_way(request, grid=grid, allowed=allowed)
    surely = _on_one(request, grid=grid, allowed=allowed)
    return surely | _in_any_way(request, grid=grid, allowed=allowed) if _inits_lie_inside(request) else surely


def _in_any_way(request: PodRequest, *, grid: Cells, allowed: Bools) -> Bools:
    surely = np.ones(grid.rows, dtype=np.bool_)
    before: list[Piece] = []
    for container in in_order(request):
        theirs = pieces_of(container)
        for place, piece in enumerate(theirs):
            # As many GPUs are touched as pieces were laid, at the most; and so many are this container's own.
            untouched = takes(piece, grid=grid, allowed=allowed).sum(axis=1) > len(before) + place
            beside = _take_all([*before, piece], grid=grid, allowed=allowed).sum(axis=1) > place
            surely &= untouched | beside
        before += theirs
    return surely


def _on_one(request: PodRequest, *, grid: Cells, allowed: Bools) -> Bools:
    """Where one GPU has room for all of a pod with init containers: such are tried on each GPU alone, too."""
    if any(len(one.shares) > 1 for one in request.containers):
        return np.zeros(grid.rows, dtype=np.bool_)
    steady = [pieces_of(one)[0] for one in in_order(request)]
    sidecars = [pieces_of(one)[0] for one in request.containers if one.kind is Kind.SIDECAR]
    room = _take_all(steady, grid=grid, allowed=allowed)
    for init in (pieces_of(one)[0] for one in request.containers if one.kind is Kind.INIT):
        room &= _take_all([*sidecars, init], grid=grid, allowed=allowed)
    found: Bools = room.sum(axis=1) > 0
    return found


def _inits_lie_inside(request: PodRequest) -> bool:
    """Whether each init container has room wherever its app containers have."""
    apps = [pieces_of(one)[0] for one in request.containers if one.kind is Kind.APP]
    inits = [pieces_of(one) for one in request.containers if one.kind is Kind.INIT]
    return all(len(pieces) == 1 and any(_is_within(pieces[0], app) for app in apps) for pieces in inits)


def _is_within(one: Piece, other: Piece) -> bool:
    return one.compute <= other.compute and one.memory <= other.memory and one.portion <= other.portion


def _take_all(pieces: Sequence[Piece], *, grid: Cells, allowed: Bools) -> Bools:
    """The GPUs that have room for all of these at the same time."""
    if len(pieces) > 1 and any(piece.whole for piece in pieces):
        return np.zeros_like(allowed)
    # An instance of MIG has room for one.
    room = allowed & ~grid.cut if len(pieces) > 1 else allowed.copy()
    for piece in pieces:
        room &= takes(piece, grid=grid, allowed=allowed)
    memory = sum(needed_memory(piece, grid=grid).astype(np.int64) for piece in pieces)
    found: Bools = room & (grid.compute >= sum(piece.compute for piece in pieces)) & (grid.memory >= memory)
    return found


def _both(one: Piece, other: Piece, *, grid: Cells, allowed: Bools) -> Bools:
    first, second = (takes(piece, grid=grid, allowed=allowed) for piece in (one, other))
    on_two: Bools = first.any(axis=1) & second.any(axis=1) & ((first | second).sum(axis=1) > 1)
    if one.whole or other.whole:
        return on_two
    memory = needed_memory(one, grid=grid) + needed_memory(other, grid=grid)
    on_one = first & second & ~grid.cut & (grid.compute >= one.compute + other.compute) & (grid.memory >= memory)
    both: Bools = on_two | on_one.any(axis=1)
    return both


def alike(request: PodRequest, rows: Rows, *, grid: Cells, levels: Levels | None) -> Sequence[int]:
    """For each of these rows a number, the same for those where a trial says the same.

    `levels` is what else of a row decides which GPUs lose least.
    """
    several = any(len(one.shares) > 1 for one in request.containers)
    if several or request.uuids.allowed or request.uuids.forbidden:
        # How GPUs reach each other, or which they are, counts too.
        return range(len(rows))
    columns = [
        array[rows].astype(np.int64)
        for array in (grid.open, grid.closed, grid.degraded, grid.compute, grid.memory, grid.usable, grid.kind)
    ]
    # Whoever holds a GPU holds something of it, so holders need not be told apart.
    state = np.hstack([*columns, *([] if levels is None else [levels[rows, np.newaxis]])])
    _, numbers = np.unique(state, axis=0, return_inverse=True)
    found: list[int] = numbers.reshape(-1).tolist()
    return found
