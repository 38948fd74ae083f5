"""The GPUs that lists of uuids allow: asked at each look at a pod that has one, so answers are kept.

What must always hold: an answer is the one that asking every GPU would give; what was handed out never changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aliquot_core.inventory import Gpu
from aliquot_core.patterns import Patterns
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.picture.grid import Bools

# 8 kB each at 1,000 nodes with 8 GPUs; those that were used last.
_KEPT = 64


class Named:
    """By row and column of the grid."""

    def __init__(self, *, rows: int) -> None:
        self._uuids: dict[int, tuple[str, ...]] = {}
        self._changes = RowChanges(rows)
        self._rows = rows
        self._found: dict[Patterns, tuple[int, Bools]] = {}

    def gpus_seen(self, gpus: Iterable[Gpu], *, row: int, rows: int) -> None:
        """These are the GPUs of a row, none once its node is gone; the grid has so many rows."""
        self._have_rows(rows)
        uuids = tuple(gpu.uuid for gpu in gpus)
        if uuids != self._uuids.get(row, ()):
            self._uuids[row] = uuids
            self._changes.note(row)

    def places(self, uuids: Patterns, *, shape: tuple[int, int]) -> Bools | None:
        """The GPUs of a grid of that shape that are allowed by their uuids; None if all are."""
        if not (uuids.allowed or uuids.forbidden):
            return None
        self._have_rows(shape[0])
        then, found = self._found.pop(uuids, (-1, np.zeros(shape, dtype=np.bool_)))
        if found.shape != shape:
            then, found = -1, np.zeros(shape, dtype=np.bool_)
        if then != self._changes.now:
            found = found.copy()
            for row in np.flatnonzero(self._changes.since(then)).tolist():
                admitted = [uuids.admits(uuid) for uuid in self._uuids.get(row, ())]
                found[row] = False
                found[row, : len(admitted)] = admitted
        self._found[uuids] = self._changes.now, found
        if len(self._found) > _KEPT:
            del self._found[next(iter(self._found))]
        return found

    def _have_rows(self, rows: int) -> None:
        if rows != self._rows:
            self._rows = rows
            self._changes.all_anew(rows)
