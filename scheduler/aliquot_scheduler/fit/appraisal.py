"""What placing a pod would lose, asked of the grid: between the picture's arrays and `worth.loss`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Protocol

import numpy as np

from aliquot_core.quantities import WHOLE
from aliquot_core.request import Kind
from aliquot_scheduler.fit.cost import WORST
from aliquot_scheduler.fit.demand import Demand, Piece, pieces_of
from aliquot_scheduler.picture.grid import Bools, Grid
from aliquot_scheduler.worth.loss import CROWDING, Part, gpu_loss, loss
from aliquot_scheduler.worth.mix import Shape
from aliquot_scheduler.worth.room import STEPS, Ints, Reals, Room
from aliquot_scheduler.worth.scarcity import Scarcity
from aliquot_scheduler.worth.tables import Tables

# Many times what placing a pod on a good GPU can lose.
_DEGRADED = 100.0
_FULL = WHOLE.value
_ROUND = 1e-6

# A piece, how often it is asked for, and the GPUs that take it.
Placed = tuple[Piece, int, Bools]


class Lost(Protocol):
    """What taking so much (percent, MiB) of a GPU loses that has so much free."""

    def __call__(self, *, compute: int, memory: int, taken: tuple[int, int]) -> float:
        """In GPUs."""


def room_of(grid: Grid, *, cores: Reals) -> Room:
    """The grid in percent, GPU-major as it lies in memory; on what is closed nothing is free."""
    free = (grid.open & ~grid.closed & grid.bindable[:, np.newaxis]).T
    compute = np.where(free, grid.compute.T, 0).astype(np.int64)
    # Dividing whole numbers takes three times as long; 70 % must not come out as 69.999.
    memory = (grid.memory.T * (_FULL / np.maximum(1, grid.usable.T)) + _ROUND) * free
    return Room(cores=cores, compute=compute, memory=memory.astype(np.int64), kinds=grid.kind.T.astype(np.int64))


class Appraisal:
    """What is known at one instant, ready for the questions about one pod."""

    def __init__(self, *, grid: Grid, room: Room, tables: Tables, scarcity: Scarcity, cores: float) -> None:
        """`cores` is what the pod requests of its node."""
        self._grid = grid
        self._room = room
        self._tables = tables
        self._scarcity = scarcity
        self._cores = cores

    def of_nodes(self, asked: Sequence[Placed], *, fits: Bools) -> Reals:
        """By row what the pod loses there beyond the best place for it, from 0 to WORST."""
        degraded = self._grid.degraded.T
        penalty: Reals | None = np.where(degraded, _DEGRADED, 0.0) if degraded.any() else None
        parts = [
            Part(
                compute=piece.compute,
                memory=self._percent(piece),
                fits=places.T,
                count=count,
                penalty=penalty,
            )
            for piece, count, places in asked
        ]
        found = loss(self._room, cores=self._cores, parts=parts, tables=self._tables, scarcity=self._scarcity)
        best = found.nodes.min(initial=np.inf, where=fits)
        cost: Reals = np.clip(np.where(fits, found.nodes - best if np.isfinite(best) else 0.0, 0.0), 0.0, WORST)
        return cost

    def on_node(self, row: int) -> Callable[[int], Lost]:
        """What taking a part of a GPU of this node loses, by the GPU's column."""
        level = int(self._tables.level(self._room.cores[row : row + 1] - self._cores)[0])

        def on_gpu(column: int) -> Lost:
            usable, kind = max(1, int(self._grid.usable[row, column])), int(self._grid.kind[row, column])
            line = (kind * self._tables.rests.shape[1] + level) * STEPS
            crowding = CROWDING * float(self._scarcity.crowding[kind]) / _FULL

            def lost(*, compute: int, memory: int, taken: tuple[int, int]) -> float:
                before = compute, memory * _FULL // usable
                after = compute - taken[0], 0 if taken[0] == _FULL else (memory - taken[1]) * _FULL // usable
                size = max(before[0] - after[0], before[1] - after[1])
                found = gpu_loss(before=_state(before), after=_state(after), line=line, tables=self._tables)
                return float(found) + crowding * size

            return lost

        return on_gpu

    def _percent(self, piece: Piece) -> Ints | int:
        """Of each card's memory, begun percents as whole ones; a whole slice closes the card."""
        if piece.whole or piece.memory == 0:
            return _FULL if piece.whole else piece.portion
        needed: Ints = np.ceil(piece.memory * (_FULL / np.maximum(1, self._grid.usable.T)) - _ROUND).astype(np.int64)
        return needed


def _state(free: tuple[int, int]) -> tuple[int, int]:
    compute, memory = free
    return compute * STEPS + memory, min(free)


def distinct(demand: Demand) -> list[tuple[Piece, int]]:
    """The pieces that are asked of different GPUs, and how often; of several containers each counts by itself."""
    asked = demand.pieces
    if asked is None:
        containers = (pieces_of(one) for one in demand.request.containers if one.kind is not Kind.INIT)
        asked = tuple(piece for pieces in containers for piece in pieces)
    return [(piece, len(list(same))) for piece, same in groupby(asked)]


def shape_of(demand: Demand, *, cores: float, card: int) -> Shape:
    """How the pod counts in the mix: by its largest piece, on cards of so many MiB."""
    (piece, _), *_ = sorted(distinct(demand), key=lambda one: (-one[0].compute, -one[0].memory))
    gpus = len(demand.pieces) if demand.pieces else 1
    memory = piece.portion or min(_FULL, -(-piece.memory * _FULL // max(1, card)))
    return Shape(cores=cores, compute=piece.compute, memory=memory, gpus=gpus, models=demand.request.models)
