"""One row of the grid asked in plain numbers: what `survey` says of it, in a tenth of the time."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.fit.appraisal import Appraisal, PlacedInRow
from aliquot_scheduler.fit.demand import Piece
from aliquot_scheduler.picture.grid import Cells, PlainRow


def ask_row(
    row: int, asked: Sequence[tuple[Piece, int]], *, grid: Cells, suitable: Sequence[bool], appraisal: Appraisal
) -> tuple[bool, float]:
    """Whether these pieces, each so often, fit there, and what is lost by them; `suitable` is by kind of GPU."""
    cells = grid.plain(row)
    placed: list[PlacedInRow] = []
    so_far = 0
    for piece, count in asked:
        places = _takes(piece, cells, suitable=suitable)
        so_far += count
        if len(places) < so_far or not cells.bindable:
            return False, 0.0
        placed.append((piece, count, places))
    return True, appraisal.of_row(row, cells, placed)


def _takes(piece: Piece, cells: PlainRow, *, suitable: Sequence[bool]) -> list[int]:
    """The GPUs that have room for a piece, by their columns; as `places.takes` says it of all rows."""
    return [
        column
        for column, usable in enumerate(cells.usable)
        if cells.open[column]
        and not cells.closed[column]
        and cells.compute[column] >= piece.compute
        and cells.memory[column] >= piece.memory_on(usable)
        and suitable[cells.kind[column]]
        and not (piece.whole and cells.holders[column])
    ]
