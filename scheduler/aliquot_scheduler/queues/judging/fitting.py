"""Which shapes of waiting pods a card may have room for, each known by a number.

It is quick and never wrongly says no: a cluster that is full answers thousands of waiting pods from one table, and only
who may fit is laid out on real cards (0.3 ms for 8,000 GPUs).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE
from aliquot_core.request import PodRequest, Quality
from aliquot_scheduler.fit.demand import Demand, pieces_of
from aliquot_scheduler.picture.grid import Grid

_NONE = -1
# To make a set of 18,000 takes a millisecond, and where most fit nobody is looked for long.
_FEW = 200


Asked = tuple[Patterns, str, frozenset[Quality], tuple[bool, ...]]


def asked_of(request: PodRequest) -> Asked:
    """What decides which kinds of cards a pod may have."""
    return request.models, request.isolation, request.qualities, request.wholes


class _Firsts:
    """Of those that allow the same cards: their numbers, and how much of one card the first piece of each needs."""

    def __init__(self, *, request: PodRequest) -> None:
        self.request = request
        self._rows: list[tuple[int, int, int]] = []
        self._columns: npt.NDArray[np.int64] = np.zeros((3, 0), dtype=np.int64)

    def add(self, row: tuple[int, int, int]) -> None:
        """One more; to make arrays of thousands takes milliseconds, so that is done when they are asked for."""
        self._rows.append(row)

    def columns(self) -> npt.NDArray[np.int64]:
        """Numbers, compute, memory."""
        if self._rows:
            self._columns = np.concatenate([self._columns, np.array(self._rows, dtype=np.int64).T], axis=1)
            self._rows.clear()
        return self._columns


class Fitting:
    """All shapes that have a number, on one picture's cards; `kinds` says which kinds of them a pod allows."""

    def __init__(self, *, grid: Grid, kinds: Callable[[PodRequest], Collection[int]]) -> None:
        self._grid = grid
        self._kinds = kinds
        self._firsts: dict[Asked, _Firsts] = {}
        # The same by number.
        self._pieces: list[tuple[_Firsts, int, int]] = []
        # How many shapes have a number.
        self.registered = 0
        self._known: tuple[int, list[bool]] = (_NONE, [])
        self._fits: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._few: frozenset[int] | None = None
        self._table: tuple[int, list[list[int]]] = (_NONE, [])
        self._by_row: tuple[int, ByRow] | None = None

    def register(self, demand: Demand) -> int:
        """A number for those that ask so."""
        request = demand.request
        pieces = demand.pieces or pieces_of(request.containers[0])
        first = (self.registered, pieces[0].compute, max(1, pieces[0].memory))
        firsts = self._firsts.setdefault(asked_of(request), _Firsts(request=request))
        firsts.add(first)
        self._pieces.append((firsts, *first[1:]))
        self.registered += 1
        self._known = _NONE, []
        return self.registered - 1

    def all(self) -> list[bool]:
        """By number, whether a card with room for the first piece may be there."""
        if self._known[0] != self._grid.version:
            frontier, fits = np.array(self._frontier()), np.zeros(self.registered, dtype=np.bool_)
            for firsts in self._firsts.values():
                if kinds := sorted(self._kinds(firsts.request)):
                    numbers, compute, least = firsts.columns()
                    fits[numbers] = frontier[kinds].max(axis=0)[compute] >= least
            self._known, self._fits = (self._grid.version, fits.tolist()), fits
            few = np.count_nonzero(fits) <= _FEW
            self._few = frozenset(np.flatnonzero(fits).tolist()) if few else None
        return self._known[1]

    def fits(self) -> npt.NDArray[np.bool_]:
        """The same as an array: to look up thousands one by one takes milliseconds."""
        self.all()
        return self._fits

    def few(self) -> frozenset[int] | None:
        """The numbers for which it says yes, where the cards are so full that these are few; else None."""
        self.all()
        return self._few

    def by_row(self) -> ByRow:
        """The same of each node, as things are now."""
        if self._by_row is None or self._by_row[0] != self._grid.version:
            self._by_row = self._grid.version, ByRow(grid=self._grid, kinds=self._kinds, pieces=self._pieces)
        return self._by_row[1]

    def _frontier(self) -> list[list[int]]:
        """For each kind and number of percent, the most memory of a card with so much compute; -1 if there is none."""
        grid = self._grid
        if self._table[0] != grid.version:
            room = grid.open & ~grid.closed & grid.bindable[:, np.newaxis]
            most = np.full((len(grid.kinds), WHOLE.value + 1), -1, dtype=np.int32)
            # A card with a holder takes no whole slice, even if that holder has memory alone.
            compute = np.where(grid.holders == 0, grid.compute, np.minimum(grid.compute, WHOLE.value - 1))
            # One number for both: six times as fast as a pair of them (0.05 ms for 20,000 cards).
            places = grid.kind.astype(np.intp) * most.shape[1] + compute
            np.maximum.at(most.reshape(-1), places[room], grid.memory[room])
            self._table = grid.version, np.maximum.accumulate(most[:, ::-1], axis=1)[:, ::-1].tolist()
        return self._table[1]


class ByRow:
    """On which nodes, by their rows, a card may have room for the first piece of a shape: as of its making."""

    def __init__(
        self,
        *,
        grid: Grid,
        kinds: Callable[[PodRequest], Collection[int]],
        pieces: Sequence[tuple[_Firsts, int, int]],
    ) -> None:
        """`pieces` are by number: with whom it shares which kinds it allows, and how much of a card it needs."""
        self._kinds = kinds
        self._pieces = pieces
        self._kinds_of: dict[_Firsts, list[int]] = {}
        compute = np.where(grid.holders == 0, grid.compute, np.minimum(grid.compute, WHOLE.value - 1))
        room = grid.open & ~grid.closed & grid.bindable[:, np.newaxis] & (compute > 0)
        # Those where any compute is left.
        self.rows: list[int] = np.flatnonzero(room.any(axis=1)).tolist()
        most = np.full((len(grid.kinds), len(self.rows), WHOLE.value + 1), -1, dtype=np.int32)
        rows, columns = np.nonzero(room[self.rows])
        cells = grid.part(np.array(self.rows, dtype=np.intp))
        places = cells.kind[rows, columns], rows, compute[self.rows][rows, columns]
        np.maximum.at(most, places, cells.memory[rows, columns])
        self._most = np.maximum.accumulate(most[:, :, ::-1], axis=2)[:, :, ::-1]
        # What some of these rows have room for, for those who may have the same kinds: thousands are asked about few.
        self._room_on: dict[tuple[_Firsts, int], list[int]] = {}

    def asks_no_compute(self, number: int) -> bool:
        """Whether such a shape asks for no compute, so that it may lie on other rows too."""
        return self._pieces[number][1] == 0

    def takes(self, number: int, among: int) -> bool:
        """Whether any of these rows may have room for such a shape; the lowest bit is the first of `rows`."""
        firsts, compute, least = self._pieces[number]
        room = self._room_on.get((firsts, among))
        if room is None:
            room = self._room_on[firsts, among] = self._most_on(firsts, among)
        return room[compute] >= least

    def _most_on(self, firsts: _Firsts, among: int) -> list[int]:
        """By the number of percent, the most memory of a card on these rows that has so much compute; -1 if none."""
        if firsts not in self._kinds_of:
            self._kinds_of[firsts] = sorted(self._kinds(firsts.request))
        kinds, places = self._kinds_of[firsts], [place for place in range(len(self.rows)) if among >> place & 1]
        most: list[int] = self._most[np.ix_(kinds, places)].max(axis=(0, 1), initial=_NONE).tolist()
        return most
