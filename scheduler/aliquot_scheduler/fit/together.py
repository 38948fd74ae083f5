"""Pods whose containers hold slices at the same time: which nodes are worth a trial, and which trials say the same.

Laying such a pod out on one node takes up to 0.5 ms, so on 1,000 nodes everybody else would wait half a second. Two
things are asked of all nodes at once instead. Any two pieces of different containers must find room, on one GPU or on
two: nodes that are full fail that. And nodes whose GPUs are in the same state give the same answer: empty ones do.

What must always hold: no node is left out that could take the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from aliquot_core.request import Kind, PodRequest
from aliquot_scheduler.fit.demand import Piece, pieces_of
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
    return may


def _both(one: Piece, other: Piece, *, grid: Cells, allowed: Bools) -> Bools:
    first, second = (takes(piece, grid=grid, allowed=allowed) for piece in (one, other))
    on_two: Bools = first.any(axis=1) & second.any(axis=1) & ((first | second).sum(axis=1) > 1)
    if one.whole or other.whole:
        return on_two
    memory = needed_memory(one, grid=grid) + needed_memory(other, grid=grid)
    on_one = first & second & (grid.compute >= one.compute + other.compute) & (grid.memory >= memory)
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
