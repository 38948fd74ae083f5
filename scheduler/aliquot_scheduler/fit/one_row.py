"""One row of the grid asked in plain numbers: what `survey` says of it, in a tenth of the time."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_scheduler.fit.appraisal import Appraisal, PlacedInRow
from aliquot_scheduler.fit.demand import Piece
from aliquot_scheduler.fit.plain_rows import PlainRows
from aliquot_scheduler.picture.grid import PlainRow


def ask_row(
    row: int,
    asked: Sequence[tuple[Piece, int]],
    *,
    rows: PlainRows,
    suitable: Sequence[Sequence[bool]],
    appraisal: Appraisal,
) -> tuple[bool, float]:
    """Whether these pieces, each so often, fit there, and what is lost by them.

    `suitable` is by kind of GPU, for each mode in which a container may have several (`modes.kinds_together`).
    """
    state = rows.of(row)
    cells = state.cells
    if not cells.bindable:
        return False, 0.0
    ways = [places for own in suitable if (places := _each_placed(asked, cells, suitable=own)) is not None]
    if not ways:
        return False, 0.0
    places = ways[0] if len(ways) == 1 else [sorted(frozenset[int]().union(*some)) for some in zip(*ways, strict=True)]
    placed: list[PlacedInRow] = [(*one, some) for one, some in zip(asked, places, strict=True)]
    return True, appraisal.of_row(row, state, placed)


def _each_placed(
    asked: Sequence[tuple[Piece, int]], cells: PlainRow, *, suitable: Sequence[bool]
) -> list[list[int]] | None:
    """The GPUs that take each piece, if there are enough."""
    found, so_far = list[list[int]](), 0
    for piece, count in asked:
        found.append(_takes(piece, cells, suitable=suitable))
        so_far += count
        if len(found[-1]) < so_far:
            return None
    return found


def _takes(piece: Piece, cells: PlainRow, *, suitable: Sequence[bool]) -> list[int]:
    """The GPUs that have room for a piece, by their columns; as `places.takes` says it of all rows."""
    compute, whole = piece.compute, piece.whole
    return [
        column
        for column, usable in enumerate(cells.usable)
        if cells.open[column]
        and not cells.closed[column]
        and cells.compute[column] >= compute
        and cells.memory[column] >= piece.memory_on(usable)
        and suitable[cells.kind[column]]
        and not (whole and cells.holders[column])
    ]
