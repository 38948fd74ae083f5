"""Rows in plain numbers, kept until they change: where pods of many shapes come in turn, each asks of the same ones."""

from __future__ import annotations

from typing import NamedTuple

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.picture.grid import Grid, PlainRow
from aliquot_scheduler.worth.of_one import Free

_FULL = WHOLE.value
# 70 % must not come out as 69.999.
ROUND = 1e-6


class RowState(NamedTuple):
    """A row, and by GPU what is free of it in percent and of which kind it counts, as `room_of` would have it."""

    cells: PlainRow
    free: list[Free]
    kinds: list[int]


class PlainRows:
    """Of one grid."""

    def __init__(self, *, grid: Grid) -> None:
        self._grid = grid
        # Each as of which change of its row; some 3 kB.
        self._kept: dict[int, tuple[int, RowState]] = {}

    def of(self, row: int) -> RowState:
        """That row as it is now."""
        when, kept = self._grid.changes.of(row), self._kept.get(row)
        if kept is None or kept[0] != when:
            kept = self._kept[row] = when, state_of(self._grid.plain(row))
        return kept[1]


def state_of(cells: PlainRow) -> RowState:
    """What follows from its cells, whoever asks."""
    free: list[Free] = []
    for gpu_open, closed, cut, compute, memory, usable in zip(
        cells.open, cells.closed, cells.cut, cells.compute, cells.memory, cells.usable, strict=True
    ):
        can_be = gpu_open and not closed and not cut
        free.append((compute, int(memory * (_FULL / max(1, usable)) + ROUND)) if can_be else (0, 0))
    kinds = [kind if min(left) > 0 else cells.kind[0] for kind, left in zip(cells.kind, free, strict=True)]
    return RowState(cells=cells, free=free, kinds=kinds)
