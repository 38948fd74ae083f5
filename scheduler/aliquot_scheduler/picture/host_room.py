"""CPU, memory and places for pods that nodes have left: of all pods that lie there, whether or not they use GPUs.

Of extended resources (`example.com/fpga`) only what nodes have is known here, and not what of it is in use.

A pod takes from its node from the moment at which room is promised to it until it has ended or is gone. What a node
does not say of itself is not counted: kube-scheduler then knows better. For whom room is made, it is kept here too;
those who are to go hold it still, so less than nothing may be free.

What must always hold: what is free of a known node is what it has, less the sum over those who hold of it or for whom
it is kept; a node that comes back finds its pods counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from aliquot_core.hosts import MOST, is_extended, quantity
from aliquot_core.objects import Node
from aliquot_core.quantities import QuantityError
from aliquot_scheduler.picture.changes import RowChanges

# Thousandths of CPUs, bytes of memory, pods: the columns of the arrays.
CPU, MEMORY, PODS = range(3)
HostAmounts = tuple[int, int, int]
# As good as without end, and still nothing overflows when pods are taken from it.
UNTOLD = 2**62
_NOTHING: HostAmounts = (0, 0, 0)
MILLI = 1000
_READ = (("cpu", MILLI), ("memory", 1), ("pods", 1))
HostInts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


class HostRoom:
    """What is there and what is free, by row of the grid."""

    def __init__(self, *, rows: int) -> None:
        # Changes whenever a node may have more left than before; and whenever what there is changes.
        self.version = 0
        self.sizes_version = 0
        self.allocatable = _array(rows)
        self.free = _array(rows)
        # What of it is free CPU, in cores, for whoever values it: a node that does not tell of any has none to value.
        self.cores: Reals = np.zeros(rows)
        # When what is free of which node changed last.
        self.changes = RowChanges(rows)
        # What there is of each extended resource that any node ever told of.
        self._extended: dict[str, HostInts] = {}
        self._rows: dict[str, int] = {}
        self._told: dict[str, Mapping[str, str]] = {}
        self._held: dict[str, tuple[str, HostAmounts]] = {}
        self._kept: dict[str, tuple[str, HostAmounts]] = {}
        self._by_node: dict[str, HostAmounts] = {}

    def node_seen(self, node: Node, *, row: int, rows: int) -> None:
        """A node is there, or is changed; the grid has so many rows."""
        name, told = node.metadata.name, node.status.allocatable
        if rows > len(self.free):
            self.allocatable, self.free = _grown(self.allocatable, rows), _grown(self.free, rows)
            self.cores = np.concatenate([self.cores, np.zeros(rows - self.cores.size)])
            self.changes.all_anew(rows)
            self._extended = {resource: _longer(there, rows) for resource, there in self._extended.items()}
        # It tells of itself every few seconds, mostly the same.
        if self._rows.get(name) == row and self._told[name] == told:
            return
        self._rows[name], self._told[name] = row, told
        self.allocatable[row] = [_read(told.get(resource), scale) for resource, scale in _READ]
        self._tell_extended(row, told)
        self._count(name)
        self.version += 1
        self.sizes_version += 1

    def node_gone(self, name: str) -> None:
        """A node's object is deleted; what its pods hold is theirs until they are gone too."""
        if (row := self._rows.pop(name, None)) is not None:
            del self._told[name]
            self.allocatable[row] = self.free[row] = self.cores[row] = 0
            self._tell_extended(row, {})
            self.changes.note(row)
            self.sizes_version += 1

    def there_is(self, resource: str) -> HostInts:
        """How much of an extended resource there is, by row; a node that does not tell of it has none."""
        return self._extended.get(resource, np.zeros(len(self.free), dtype=np.int64))

    def hold(self, holder: str, *, node: str, amounts: tuple[int, int]) -> None:
        """Let a pod hold so much CPU and memory of this node, and nothing of any other."""
        now = node, (*amounts, 1)
        if self._held.get(holder) != now:
            self.release(holder)
            self._held[holder] = now
            self._add(node, now[1], sign=1)

    def release(self, holder: str) -> None:
        """Let it hold nothing any more."""
        if (held := self._held.pop(holder, None)) is not None:
            self._add(*held, sign=-1)
            self.version += 1

    def keep(self, whom: str, *, node: str, amounts: tuple[int, int]) -> None:
        """Keep so much for somebody, and nothing of any other node."""
        self.keep_nothing(whom)
        self._kept[whom] = node, (*amounts, 1)
        self._add(*self._kept[whom], sign=1)

    def keep_nothing(self, whom: str) -> None:
        """Keep nothing for it any more."""
        if (kept := self._kept.pop(whom, None)) is not None:
            self._add(*kept, sign=-1)
            self.version += 1

    def cores_but(self, holder: str) -> Reals:
        """Free cores by row, as if this one held none."""
        node, amounts = self._held.get(holder, ("", _NOTHING))
        row = self._rows.get(node)
        if row is None or self.allocatable[row, CPU] == UNTOLD:
            return self.cores
        cores = self.cores.copy()
        cores[row] += amounts[CPU] / MILLI
        return cores

    def is_kept(self, whom: str) -> bool:
        """Whether anything is kept for it."""
        return whom in self._kept

    def _tell_extended(self, row: int, told: Mapping[str, str]) -> None:
        for there in self._extended.values():
            there[row] = 0
        for resource in filter(is_extended, told):
            if resource not in self._extended:
                self._extended[resource] = np.zeros(len(self.free), dtype=np.int64)
            self._extended[resource][row] = _read(told[resource], 1)

    def _add(self, node: str, amounts: HostAmounts, *, sign: int) -> None:
        cpu, memory, pods = self._by_node.get(node, _NOTHING)
        total = cpu + sign * amounts[CPU], memory + sign * amounts[MEMORY], pods + sign * amounts[PODS]
        if total == _NOTHING:
            self._by_node.pop(node, None)
        else:
            self._by_node[node] = total
        self._count(node)

    def _count(self, node: str) -> None:
        if (row := self._rows.get(node)) is not None:
            taken = [min(MOST, amount) for amount in self._by_node.get(node, _NOTHING)]
            self.free[row] = self.allocatable[row] - np.array(taken, dtype=np.int64)
            self.cores[row] = 0.0 if self.allocatable[row, CPU] == UNTOLD else self.free[row, CPU] / MILLI
            self.changes.note(row)


def _array(rows: int) -> HostInts:
    # Column after column, as the grid's.
    return np.zeros((rows, 3), dtype=np.int64, order="F")


def _longer(there: HostInts, rows: int) -> HostInts:
    return np.concatenate([there, np.zeros(rows - there.size, dtype=np.int64)])


def _grown(array: HostInts, rows: int) -> HostInts:
    more = _array(rows)
    more[: len(array)] = array
    return more


def _read(text: str | None, scale: int) -> int:
    if text is None:
        return UNTOLD
    try:
        return min(UNTOLD, int(scale * quantity(text, where="allocatable")))
    except QuantityError:
        return UNTOLD
