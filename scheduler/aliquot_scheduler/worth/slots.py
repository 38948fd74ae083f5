"""What the room on one GPU is worth, by how much of it is free: which rests add up to what pods ask for.

Theory of operation. Think of all GPUs empty and of as much demand as they could hold, in the sizes that are seen. The
best packing of it is a linear programme over patterns (this much of 100 % by these sizes); the price of a size in its
optimum says what a hole of just that size earns that another could not. A rest of 19 % earns nothing where nobody asks
for so little, and 46 % with 54 % beside it as much as a whole GPU. What is free is worth the best filling of it at
these prices.

The programme has a row for each size and far too many patterns; those that matter are found one by one, each by the
very question what an empty GPU is worth at the prices so far (column generation, Gilmore and Gomory 1961).

What must always hold: more room is never worth less; nothing is worth more than the GPUs it fills.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_core.quantities import WHOLE
from aliquot_scheduler.worth.mix import Mix

Reals = npt.NDArray[np.float64]

_FULL = WHOLE.value
_SMALL = 1e-9
# Where all fits exactly nothing is scarce and all room would be worth nothing; 0.95 to 1.05 place openb alike.
_CROWDED = 1.02
# The optimum of 25 sizes takes some 60 patterns.
_MOST_PATTERNS = 400
_MOST_PIVOTS = 4000
# Where people choose memory by the MiB, 400 shapes have 320 sizes: 7 s of computing. The commonest 32 take 16 ms.
MOST_SIZES = 32


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Percent of compute and of memory of one GPU, and how many per GPU of the cluster are asked for."""

    compute: int
    memory: int
    demand: float

    @property
    def gain(self) -> float:
        """What filling it is worth, in GPUs."""
        return max(self.compute, self.memory) / _FULL


def sizes_of(mix: Mix) -> list[Size]:
    """The sizes asked for, scaled so that together they are a little more than all GPUs have, on one axis at least."""
    demand: dict[tuple[int, int], float] = {}
    for shape, share in mix.with_gpus:
        memory = _FULL if shape.whole else shape.memory
        demand[shape.compute, memory] = demand.get((shape.compute, memory), 0.0) + share * shape.gpus
    demand = _fewer(demand)
    total = max(sum(size[axis] / _FULL * count for size, count in demand.items()) for axis in (0, 1)) / _CROWDED
    return [Size(compute=c, memory=m, demand=count / total) for (c, m), count in sorted(demand.items())]


def _fewer(demand: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """The commonest sizes; each rarer one counts as that of them which is nearest."""
    kept = sorted(demand, key=lambda size: (-demand[size], size))[:MOST_SIZES]
    fewer = dict.fromkeys(kept, 0.0)
    for size, count in demand.items():
        fewer[min(kept, key=lambda one: (abs(one[0] - size[0]) + abs(one[1] - size[1]), one))] += count
    return fewer


def slot_values(sizes: Sequence[Size]) -> Reals:
    """What a GPU with so many percent of compute (row) and memory (column) free is worth, in GPUs."""
    prices = slot_prices(sizes)
    return _filled(sizes, prices)


def slot_prices(sizes: Sequence[Size]) -> Reals:
    """What a hole of each size is worth in the best packing."""
    programme = _Programme(sizes)
    prices = np.zeros(len(sizes))
    for _ in range(_MOST_PATTERNS):
        prices, of_gpu = programme.solve()
        values = _filled(sizes, prices)
        if values[_FULL, _FULL] <= of_gpu + 1e-7:
            break
        programme.add(_pattern(sizes, prices, values))
    return prices


def _filled(sizes: Sequence[Size], prices: Reals) -> Reals:
    """The best filling of each free room at these prices; where both are asked alike, the diagonal says it all."""
    paid = [(one, price) for one, price in zip(sizes, prices.tolist(), strict=True) if price > _SMALL]
    if all(one.compute == one.memory for one, _ in paid):
        line = np.zeros(_FULL + 1)
        for free in range(1, _FULL + 1):
            fitting = [line[free - one.compute] + price for one, price in paid if one.compute <= free]
            line[free] = max([line[free - 1], *fitting])
        room = np.minimum(*np.indices((_FULL + 1, _FULL + 1)))
        return line[room]
    values = np.zeros((_FULL + 1, _FULL + 1))
    for _ in range(_FULL):
        before = values.copy()
        for one, price in paid:
            inner = values[: _FULL + 1 - one.compute, : _FULL + 1 - one.memory] + price
            np.maximum(values[one.compute :, one.memory :], inner, out=values[one.compute :, one.memory :])
        if np.array_equal(before, values):
            break
    return values


def _pattern(sizes: Sequence[Size], prices: Reals, values: Reals) -> Reals:
    """The filling that makes an empty GPU worth so much: how many of each size."""
    counts = np.zeros(len(sizes))
    compute = memory = _FULL
    while True:
        for number, (one, price) in enumerate(zip(sizes, prices.tolist(), strict=True)):
            if price > _SMALL and one.compute <= compute and one.memory <= memory:
                rest = values[compute - one.compute, memory - one.memory]
                if abs(values[compute, memory] - price - rest) < _SMALL:
                    counts[number] += 1
                    compute, memory = compute - one.compute, memory - one.memory
                    break
        else:
            return counts


class _Programme:
    """The packing as a linear programme, solved by the simplex method on a table.

    Variables: how much of each size is served, how often each pattern is used, and slacks. Rows: of each size no more
    is served than holes were made; no more than is asked for; no more patterns than GPUs. All slack is a solution, so
    it can begin there, and a new pattern is one more column of the table that is reached.
    """

    def __init__(self, sizes: Sequence[Size]) -> None:
        count = self._count = len(sizes)
        rows = self._rows = 2 * count + 1
        limits = np.concatenate([np.zeros(count), [one.demand for one in sizes], [1.0]])
        # A different trifle for each row: equal limits make the method go in circles.
        limits += 1e-7 * (1.0 + np.arange(rows) / rows)
        served = np.vstack([np.eye(count), np.eye(count), np.zeros((1, count))])
        self._table = np.hstack([limits[:, np.newaxis], np.eye(rows), served])
        self._costs = np.concatenate([np.zeros(1 + rows), [-one.gain for one in sizes]])
        self._basis = list(range(1, rows + 1))

    def add(self, pattern: Reals) -> None:
        """One more way to cut a GPU up."""
        column = np.concatenate([-pattern, np.zeros(self._count), [1.0]])
        slacks = slice(1, self._rows + 1)
        self._table = np.hstack([self._table, (self._table[:, slacks] @ column)[:, np.newaxis]])
        self._costs = np.append(self._costs, self._costs[slacks] @ column)

    def solve(self) -> tuple[Reals, float]:
        """The prices of holes, and of a GPU."""
        for _ in range(_MOST_PIVOTS):
            entering = int(self._costs[1:].argmin()) + 1
            if self._costs[entering] > -_SMALL:
                break
            column = self._table[:, entering]
            ratios = np.full(self._rows, np.inf)
            np.divide(self._table[:, 0], column, out=ratios, where=column > _SMALL)
            self._pivot(int(ratios.argmin()), entering)
        prices: Reals = np.maximum(0.0, self._costs[1 : self._count + 1])
        return prices, float(self._costs[self._rows])

    def _pivot(self, leaving: int, entering: int) -> None:
        row = self._table[leaving] / self._table[leaving, entering]
        self._table -= np.outer(self._table[:, entering], row)
        self._table[leaving] = row
        self._costs -= self._costs[entering] * row
        self._basis[leaving] = entering
