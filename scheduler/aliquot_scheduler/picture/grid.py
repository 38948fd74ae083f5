"""All GPUs of the cluster as arrays: a row for each node, a column for each GPU of it.

"Where does this fit" is asked for every pod, of up to 40,000 GPUs: numpy answers in 0.1 ms, a loop in 10.
Two dimensions, so that what is asked of a node's GPUs together is a sum along a row.

What must always hold: a place without a GPU, or with one that may not be given, is not `open`; a row that belongs to no
node has no open place; numbers are those of `write` alone, nothing is added up here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from aliquot_core.claims import Claim
from aliquot_core.inventory import Gpu, Health
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.picture.changes import RowChanges

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
# Numbers of rows.
Rows = npt.NDArray[np.intp]

_ROWS = 64
_COLUMNS = 8
# Column after column: what is asked of a node's GPUs together is then eight steps over long columns, not one for each
# of 1,000 short rows (the least of each node: 3 us instead of 60).
_ORDER: Literal["F"] = "F"
_ARRAYS = ("compute", "memory", "usable", "holders", "kind", "open", "closed", "degraded", "failing", "total", "cut")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What requests may ask of a GPU beside room: few kinds, however many GPUs."""

    models: tuple[str, ...]
    isolation: tuple[str, ...]
    # What it has in percent of a card; less than a card only where it is cut: an instance of MIG.
    compute: int = WHOLE.value
    cut: bool = False
    # MiB that a CUDA context takes of it, if its agent says so; and of how many percent of its memory that is within.
    context: int | None = None
    context_share: int = 0

    @property
    def takes_all(self) -> bool:
        """Whether a context takes all of its memory: nobody can use such a GPU."""
        return self.context_share > WHOLE.value


def kind_of(gpu: Gpu) -> Kind:
    """What kind of GPU it is."""
    # Begun percents are whole ones, as shares are rounded down. One that falls sick stays what it is.
    share = -(-gpu.context * WHOLE.value // gpu.memory) if gpu.context and gpu.memory else 0
    if gpu.takes_all:
        share = max(share, WHOLE.value + 1)
    return Kind(
        models=gpu.model_names,
        isolation=tuple(gpu.isolation),
        compute=gpu.compute.value,
        cut=gpu.instance is not None,
        context=gpu.context,
        context_share=share,
    )


class PlainRow(NamedTuple):
    """One row in plain numbers: to ask one by one of arrays takes ten times as long."""

    compute: list[int]
    memory: list[int]
    usable: list[int]
    holders: list[int]
    kind: list[int]
    open: list[bool]
    closed: list[bool]
    degraded: list[bool]
    cut: list[bool]
    bindable: bool


class Cells:
    """The arrays: a row for each of some nodes, or of all."""

    kinds: list[Kind]
    compute: Ints
    memory: Ints
    usable: Ints
    holders: Ints
    kind: Ints
    open: Bools
    closed: Bools
    degraded: Bools
    failing: Bools
    total: Ints
    cut: Bools
    bindable: Bools

    @property
    def rows(self) -> int:
        """How many rows there are, used or not."""
        return len(self.bindable)

    def part(self, rows: Rows | slice) -> Cells:
        """A copy of some rows, in this order; of a slice no copy, but the rows themselves."""
        part = Cells()
        part.kinds, part.bindable = self.kinds, self.bindable[rows]
        for name in _ARRAYS:
            setattr(part, name, getattr(self, name)[rows])
        return part

    def emptied(self) -> Cells:
        """The same GPUs with nobody on them."""
        cells = self.part(slice(None))
        cells.compute, cells.memory = self.total.copy(), self.usable.copy()
        cells.holders, cells.closed = np.zeros_like(self.holders), np.zeros_like(self.closed)
        return cells

    def plain(self, row: int) -> PlainRow:
        """A row by itself."""
        return PlainRow(
            compute=self.compute[row].tolist(),
            memory=self.memory[row].tolist(),
            usable=self.usable[row].tolist(),
            holders=self.holders[row].tolist(),
            kind=self.kind[row].tolist(),
            open=self.open[row].tolist(),
            closed=self.closed[row].tolist(),
            degraded=self.degraded[row].tolist(),
            cut=self.cut[row].tolist(),
            bindable=bool(self.bindable[row]),
        )


class Grid(Cells):
    """All of them, and which row is whose."""

    def __init__(self) -> None:
        self._spare = list(range(_ROWS - 1, -1, -1))
        self.kinds = []
        self._numbers: dict[Kind, int] = {}
        # Changes whenever there is another kind, or a number means another one.
        self.kinds_version = 0
        # Changes with every write: what was worked out of the arrays is good as long as it is the same.
        self.version = 0
        self.changes = RowChanges(_ROWS)
        self.compute = _ints(_ROWS, _COLUMNS)
        self.memory = _ints(_ROWS, _COLUMNS)
        self.usable = _ints(_ROWS, _COLUMNS)
        self.holders = _ints(_ROWS, _COLUMNS)
        self.kind = _ints(_ROWS, _COLUMNS)
        self.open = _bools(_ROWS, _COLUMNS)
        self.closed = _bools(_ROWS, _COLUMNS)
        self.degraded = _bools(_ROWS, _COLUMNS)
        # Degraded, and by what is the matter with the card itself.
        self.failing = _bools(_ROWS, _COLUMNS)
        self.total = _ints(_ROWS, _COLUMNS)
        self.cut = _bools(_ROWS, _COLUMNS)
        self.bindable = np.zeros(_ROWS, dtype=np.bool_)

    @property
    def in_use(self) -> slice:
        """Rows up to the last to whose node pods may be bound: half of all may be spare."""
        bindable = np.flatnonzero(self.bindable)
        return slice(0, int(bindable[-1]) + 1 if bindable.size else 0)

    def take_row(self, *, gpus: int) -> int:
        """A row for a new node with so many GPUs."""
        if not self._spare:
            self._resize(rows=2 * self.rows, columns=self.open.shape[1])
        self.widen(gpus)
        return self._spare.pop()

    def give_row(self, row: int) -> None:
        """The node of this row is gone."""
        self.clear(row)
        self.allow(row, bindable=False)
        self._spare.append(row)

    def widen(self, gpus: int) -> None:
        """Have room for so many GPUs on a node."""
        if gpus > self.open.shape[1]:
            self._resize(rows=self.rows, columns=gpus)

    def tidy(self) -> None:
        """Forget the kinds and give up the columns of GPUs that are not there any more."""
        there = self.total > 0
        used = np.unique(self.kind[there]).tolist()
        if len(used) < len(self.kinds):
            self._renumber(used)
        columns = max(_COLUMNS, int(np.count_nonzero(there.any(axis=0))))
        # Half of them, so that one node that comes and goes does not have all looked at anew each time.
        if 2 * columns <= self.open.shape[1]:
            self._resize(rows=self.rows, columns=columns)

    def clear(self, row: int) -> None:
        """No GPU of this row is there."""
        self.open[row] = False
        self.total[row] = 0
        self._changed(row)

    def allow(self, row: int, *, bindable: bool) -> None:
        """Whether pods may be bound to this row's node."""
        self.bindable[row] = bindable
        self._changed(row)

    def write(self, row: int, column: int, *, gpu: Gpu, held: Claim, holders: int) -> None:
        """Put down what one GPU has left."""
        usable, total, kind = gpu.usable.value, gpu.compute.value, kind_of(gpu)
        self.open[row, column] = gpu.health is not Health.SICK and not gpu.mig
        self.degraded[row, column] = gpu.health is Health.DEGRADED
        self.failing[row, column] = gpu.failing and gpu.health is Health.DEGRADED
        self.usable[row, column] = usable
        self.total[row, column] = total
        self.cut[row, column] = kind.cut
        self.compute[row, column] = max(0, total - held.compute.value)
        self.memory[row, column] = max(0, usable - held.memory.value)
        self.holders[row, column] = holders
        self.closed[row, column] = held.closes
        self.kind[row, column] = self._number(kind)
        self._changed(row)

    def _changed(self, row: int) -> None:
        self.version += 1
        self.changes.note(row)

    def _number(self, kind: Kind) -> int:
        if kind not in self._numbers:
            self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
            self.kinds_version += 1
        return self._numbers[kind]

    def _renumber(self, used: list[int]) -> None:
        """Keep these kinds alone."""
        numbers = np.zeros(max(1, len(self.kinds)), dtype=np.int32)
        numbers[used] = np.arange(len(used))
        self.kind = np.asfortranarray(numbers[self.kind])
        # Another list: parts that were handed out keep the numbers that they have.
        self.kinds = [self.kinds[number] for number in used]
        self._numbers = {kind: number for number, kind in enumerate(self.kinds)}
        self.kinds_version += 1
        self.version += 1
        self.changes.all_anew(self.rows)

    def _resize(self, *, rows: int, columns: int) -> None:
        old = self.rows
        for name in _ARRAYS:
            was = getattr(self, name)
            now = np.zeros((rows, columns), dtype=was.dtype, order=_ORDER)
            now[: was.shape[0], : was.shape[1]] = was[:, :columns]
            setattr(self, name, now)
        bindable = np.zeros(rows, dtype=np.bool_)
        bindable[:old] = self.bindable
        self.bindable = bindable
        self._spare = list(range(rows - 1, old - 1, -1)) + self._spare
        self.version += 1
        self.changes.all_anew(rows)


def _ints(rows: int, columns: int) -> Ints:
    return np.zeros((rows, columns), dtype=np.int32, order=_ORDER)


def _bools(rows: int, columns: int) -> Bools:
    return np.zeros((rows, columns), dtype=np.bool_, order=_ORDER)
