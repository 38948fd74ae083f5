"""Which rows have changed since when: so that whoever has looked at all of them looks again at few."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


class RowChanges:
    """Changes are counted; `now` is how many there were."""

    def __init__(self, rows: int) -> None:
        self.now = 0
        self._when = np.zeros(rows, dtype=np.int64)

    def note(self, row: int) -> None:
        """This row is another one now."""
        self.now += 1
        self._when[row] = self.now

    def all_anew(self, rows: int) -> None:
        """There are so many rows, and each may be another one."""
        self.now += 1
        self._when = np.full(rows, self.now, dtype=np.int64)

    def of(self, row: int) -> int:
        """When this row changed last."""
        return int(self._when[row])

    def since(self, then: int) -> Bools:
        """By row, whether it has changed after that."""
        return self._when > then
