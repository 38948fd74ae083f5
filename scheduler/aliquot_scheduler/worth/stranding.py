"""GPUs that will stay empty on a node because it has too few cores beside them.

A node with so many percent of GPU and so many cores free is tried with pod after pod as they are seen, each placed if
the totals suffice. What of the GPUs is then still empty, less what would be empty with cores without end, is stranded.
One pod ahead is not far enough: with 3 tries the replay of openb loses 1.8 points against 20, from 10 on nothing
changes. Pods without GPU are no tries: they may go anywhere, and with them it got worse.
"""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.mix import Mix

Reals = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

TRIES = 20
# The table's steps: a tenth of a GPU, and half a core unless nodes have more than 128.
PERCENT = 10
_CORES = 0.5
_MOST_STEPS = 256


class Stranding(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs stranded, by free GPU (rows) and free cores (columns); `step` is how many cores a column is."""

    table: Reals
    step: float

    def of(self, percent: Longs, cores: Reals) -> Reals:
        """Of nodes with so much free, between two columns by the straight line."""
        # `np.clip` does the same and takes five times as long where nodes are few.
        rows = np.minimum(np.maximum((percent + PERCENT // 2) // PERCENT, 0), len(self.table) - 1)
        place = np.minimum(np.maximum(cores / self.step, 0.0), self.table.shape[1] - 1.0)
        left = place.astype(np.intp)
        right = np.minimum(left + 1, self.table.shape[1] - 1)
        low: Reals = self.table[rows, left]
        between: Reals = low + (self.table[rows, right] - low) * (place - left)
        return between


def stranding(mix: Mix, *, gpus: int, cores: float) -> Stranding:
    """Work it out for nodes that have at most so much."""
    step = max(_CORES, cores / _MOST_STEPS)
    tries = _tries(mix, step=step)
    rows, columns = gpus * WHOLE.value // PERCENT + 1, math.ceil(cores / step) + 1
    start: Reals = np.arange(rows, dtype=np.float64) * (PERCENT / WHOLE.value)
    limited: Reals = np.add(start[:, np.newaxis], np.zeros(columns))
    free: Reals = start.reshape(-1, 1)
    for _ in range(TRIES):
        limited = _tried(limited, tries)
        free = _tried(free, [(size, 0, share) for size, _, share in tries])
    return Stranding(table=np.maximum(0.0, limited - free), step=step)


def _tries(mix: Mix, *, step: float) -> list[tuple[int, int, float]]:
    """GPU and cores in steps of the table, and how often."""
    counted: dict[tuple[int, int], float] = defaultdict(float)
    for shape, share in mix.with_gpus:
        size = max(1, round(shape.size * shape.gpus / PERCENT))
        counted[size, math.ceil(shape.cores / step - 1e-9)] += share
    return [(size, cores, share) for (size, cores), share in counted.items()]


def _tried(left: Reals, tries: list[tuple[int, int, float]]) -> Reals:
    """What is left after one more pod: where it fits, what is left of the rest."""
    rows, columns = left.shape
    after = left.copy()
    for size, cores, share in tries:
        if size < rows and cores < columns:
            after[size:, cores:] += share * (left[: rows - size, : columns - cores] - left[size:, cores:])
    return after
