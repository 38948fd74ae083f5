"""What placing a pod would lose, asked of the grid: between the picture's arrays and `worth.loss`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby
from math import ceil
from typing import Protocol

import msgspec
import numpy as np

from aliquot_core.quantities import WHOLE
from aliquot_core.request import Kind
from aliquot_scheduler.fit.cost import WORST, instance_cost
from aliquot_scheduler.fit.demand import Demand, Piece, pieces_of
from aliquot_scheduler.fit.plain_rows import ROUND, RowState
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.picture.grid import Bools, Cells, Rows
from aliquot_scheduler.worth.loss import CROWDING, Part, loss
from aliquot_scheduler.worth.mix import Shape
from aliquot_scheduler.worth.of_one import Asked, Node, gpu_loss, level_of, node_loss
from aliquot_scheduler.worth.room import STEPS, Ints, Reals, Room
from aliquot_scheduler.worth.scarcity import Scarcity
from aliquot_scheduler.worth.tables import Tables

# Many times what placing a pod on a good GPU can lose.
_DEGRADED = 100.0
_FULL = WHOLE.value

# A piece, how often it is asked for, and the GPUs that take it; of one row by their columns.
Placed = tuple[Piece, int, Bools]
PlacedInRow = tuple[Piece, int, list[int]]


class Lost(Protocol):
    """What taking so much (percent, MiB) of a GPU loses that has so much free."""

    def __call__(self, *, compute: int, memory: int, taken: tuple[int, int]) -> float:
        """In GPUs."""


def room_of(cells: Cells, *, cores: Reals) -> Room:
    """The cells in percent, GPU-major as they lie in memory; on what is closed nothing is free.

    Nor on an instance of MIG: it is given whole, and has its price by itself.
    """
    can_be = (cells.open & ~cells.closed & ~cells.cut & cells.bindable[:, np.newaxis]).T
    compute = np.where(can_be, cells.compute.T, 0).astype(np.int64)
    # Dividing whole numbers takes three times as long; 70 % must not come out as 69.999.
    percent = (cells.memory.T * (_FULL / np.maximum(1, cells.usable.T)) + ROUND) * can_be
    memory = percent.astype(np.int64)
    # What has nothing free counts as of its node's kind, so that a node is judged alike whoever stands beside it.
    kinds = np.where(np.minimum(compute, memory) > 0, cells.kind.T, cells.kind.T[0]).astype(np.int64)
    return Room(cores=cores, compute=compute, memory=memory, kinds=kinds)


class Appraisal:
    """What is known at one instant, ready for the questions about one pod."""

    def __init__(
        self,
        *,
        cells: Cells,
        free: Reals,
        tables: Tables,
        scarcity: Scarcity,
        cores: float,
        changes: RowChanges | None = None,
    ) -> None:
        """`free` is the cores that each row has left, `changes` when that changed last.

        `cores` is what the pod requests of its node.
        """
        self._cells = cells
        self._free = free
        self.changes = changes or RowChanges(cells.rows)
        self.tables = tables
        self.scarcity = scarcity
        self.cores = cores

    def among(self, rows: Rows | slice) -> Appraisal:
        """The same of these rows alone."""
        return Appraisal(
            cells=self._cells.part(rows),
            free=self._free[rows],
            tables=self.tables,
            scarcity=self.scarcity,
            cores=self.cores,
        )

    def of_nodes(self, asked: Sequence[Placed]) -> Reals:
        """By row what the pod loses there; meaningless where it does not fit."""
        degraded = self._cells.degraded.T
        penalty: Reals | None = np.where(degraded, _DEGRADED, 0.0) if degraded.any() else None
        parts = [
            self._on_instances(
                Part(
                    compute=piece.compute,
                    memory=self._percent(piece),
                    fits=places.T,
                    count=count,
                    penalty=penalty,
                )
            )
            for piece, count, places in asked
        ]
        return loss(self._room, cores=self.cores, parts=parts, tables=self.tables, scarcity=self.scarcity).nodes

    def of_row(self, row: int, state: RowState, asked: Sequence[PlacedInRow]) -> float:
        """The same of one row alone, where the pod fits."""
        cells = state.cells
        penalties = [_DEGRADED if degraded else 0.0 for degraded in cells.degraded] if any(cells.degraded) else ()
        parts = [
            Asked(
                compute=piece.compute,
                memory=_percents(piece, cells.usable),
                places=places,
                count=count,
                penalties=penalties,
            )
            for piece, count, places in asked
        ]
        node = Node(cores=self._free.item(row), free=state.free, kinds=state.kinds)
        return node_loss(node, cores=self.cores, asked=parts, tables=self.tables, scarcity=self.scarcity)

    def levels(self) -> Ints:
        """By row what its cores say of its GPUs: with the state of those, what a trial there depends on."""
        return self.tables.level(self._free - self.cores)

    def on_node(self, row: int) -> Callable[[int], Lost]:
        """What taking a part of a GPU of this node loses, by the GPU's column."""
        levels, level = self.tables.rests.shape[1], level_of(self.tables, self._free.item(row) - self.cores)
        usables: list[int] = self._cells.usable[row].tolist()
        kinds: list[int] = self._cells.kind[row].tolist()

        def on_gpu(column: int) -> Lost:
            usable, line = max(1, usables[column]), (kinds[column] * levels + level) * STEPS
            crowding = CROWDING * self.scarcity.crowding.item(kinds[column]) / _FULL

            def lost(*, compute: int, memory: int, taken: tuple[int, int]) -> float:
                before = compute, memory * _FULL // usable
                after = compute - taken[0], 0 if taken[0] == _FULL else (memory - taken[1]) * _FULL // usable
                size = max(before[0] - after[0], before[1] - after[1])
                return gpu_loss(before=before, after=after, line=line, tables=self.tables) + crowding * size

            return lost

        return on_gpu

    @cached_property
    def _room(self) -> Room:
        return room_of(self._cells, cores=self._free)

    def _on_instances(self, part: Part) -> Part:
        """The same, and of an instance of MIG nothing is asked but its price."""
        cells, cut = self._cells, self._cells.cut.T
        if not cut.any():
            return part
        price = np.where(cut, instance_cost(cells.total.T, cells.usable.T), 0.0)
        return msgspec.structs.replace(
            part,
            compute=np.where(cut, 0, part.compute),
            memory=np.where(cut, 0, part.memory),
            penalty=price if part.penalty is None else price + part.penalty,
        )

    def _percent(self, piece: Piece) -> Ints | int:
        """Of each card's memory, begun percents as whole ones; a whole slice closes the card."""
        if piece.whole or piece.memory == 0:
            return _FULL if piece.whole else piece.portion
        needed: Ints = np.ceil(piece.memory * (_FULL / np.maximum(1, self._cells.usable.T)) - ROUND).astype(np.int64)
        return needed


def beyond_best(lost: Reals, *, fits: Bools) -> Reals:
    """What is lost by row beyond the best place of all, from 0 to WORST."""
    best = lost.min(initial=np.inf, where=fits)
    beyond = np.where(fits, lost - best if np.isfinite(best) else 0.0, 0.0)
    cost: Reals = np.minimum(np.maximum(beyond, 0.0), WORST)
    return cost


def _percents(piece: Piece, usables: Sequence[int]) -> list[int]:
    """By GPU; on most nodes all are of one size."""
    of_size = {usable: _percent(piece, usable) for usable in frozenset(usables)}
    return [of_size[usable] for usable in usables]


def _percent(piece: Piece, usable: int) -> int:
    """Of a card's memory; begun percents count as whole ones, and a whole slice closes the card."""
    if piece.whole or piece.memory == 0:
        return _FULL if piece.whole else piece.portion
    return ceil(piece.memory * (_FULL / max(1, usable)) - ROUND)


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
