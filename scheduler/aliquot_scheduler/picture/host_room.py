"""CPU, memory and places for pods that nodes have left: of all pods that lie there, whether or not they use GPUs.

Of extended resources (`example.com/fpga`) only what nodes have is known here, and not what of it is in use. Our own are
counted as kube-scheduler and the kubelet count them, of all who lie there or are to come: what GPUs have free is
another matter, and both must do.

A pod takes from its node from the moment at which room is promised to it until it has ended or is gone. What a node
does not say of itself is not counted: kube-scheduler then knows better. For whom room is made, it is kept here too;
those who are to go hold it still, so less than nothing may be free.

What must always hold: what is free of a known node is what it has, less the sum over those who hold of it or for whom
it is kept; a node that comes back finds its pods counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from aliquot_core.hosts import MOST, is_extended, quantity
from aliquot_core.objects import Node
from aliquot_core.quantities import QuantityError
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.picture.grid import Bools

# Thousandths of CPUs, bytes of memory, pods, and of our own resources percent, MiB, places for best effort: the columns
# of the arrays.
CPU, MEMORY, PODS, OWN_COMPUTE, OWN_MEMORY, OWN_BEST_EFFORT = range(6)
OWN = slice(OWN_COMPUTE, None)
HostAmounts = tuple[int, ...]
Own = tuple[int, int, int]
NOTHING_OWN: Own = (0, 0, 0)
# As good as without end, and still nothing overflows when pods are taken from it.
UNTOLD = 2**62
_NOTHING: HostAmounts = (0, 0, 0, *NOTHING_OWN)
MILLI = 1000
_READ = (("cpu", MILLI), ("memory", 1), ("pods", 1))
HostInts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
_Mark = TypeVar("_Mark")


class Ungranted(NamedTuple):
    """A pod that is bound without a grant that counts, and what it asks of our resources."""

    pod: str
    own: Own
    # It has one, of a later version of Aliquot: what that says can't be read here.
    later: bool = False


class HostRoom:
    """What is there and what is free, by row of the grid."""

    def __init__(self, *, rows: int, own: Sequence[str]) -> None:
        """`own` are the names of our three resources."""
        self._read = (*_READ, *((resource, 1) for resource in own))
        # By node and UID: who is bound there without a grant that counts, and what it asks.
        self.ungranted: dict[str, dict[str, Ungranted]] = {}
        # By node and UID: who is only nominated there. What is kept for it the node's kubelet does not count yet.
        self.nominated: dict[str, dict[str, str]] = {}
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
        self.allocatable[row] = [_read(told.get(resource), scale) for resource, scale in self._read]
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

    def hold(
        self,
        holder: str,
        *,
        node: str,
        amounts: tuple[int, int],
        own: Own = NOTHING_OWN,
        stray: Ungranted | None = None,
        nominated: str = "",
    ) -> None:
        """Let a pod hold so much CPU and memory of this node, and nothing of any other.

        `own` is what it asks of our resources; it is a `stray` if no grant counts for it, and `nominated` is its name
        if it is not bound there yet.
        """
        now = node, (*amounts, 1, *own)
        marks = self.ungranted.get(node, {}).get(holder), self.nominated.get(node, {}).get(holder, "")
        if self._held.get(holder) != now or marks != (stray, nominated):
            self.release(holder)
            self._held[holder] = now
            if stray:
                self.ungranted.setdefault(node, {})[holder] = stray
            if nominated:
                self.nominated.setdefault(node, {})[holder] = nominated
            self._add(node, now[1], sign=1)

    def release(self, holder: str) -> None:
        """Let it hold nothing any more."""
        if (held := self._held.pop(holder, None)) is not None:
            _forget(self.ungranted, held[0], holder)
            _forget(self.nominated, held[0], holder)
            self._add(*held, sign=-1)
            self.version += 1

    def keep(self, whom: str, *, node: str, amounts: tuple[int, int], own: Own = NOTHING_OWN) -> None:
        """Keep so much for somebody, and nothing of any other node."""
        self.keep_nothing(whom)
        self._kept[whom] = node, (*amounts, 1, *own)
        self._add(*self._kept[whom], sign=1)

    def keep_nothing(self, whom: str) -> None:
        """Keep nothing for it any more."""
        if (kept := self._kept.pop(whom, None)) is not None:
            self._add(*kept, sign=-1)
            self.version += 1

    def own_left(self, node: str, *, but: str = "") -> Own | None:
        """What kube-scheduler has left of our resources on a node; None if nobody knows it.

        `but` is who is not counted.
        """
        row = self._rows.get(node)
        if row is None:
            return None
        where, amounts = self._held.get(but, ("", _NOTHING))
        back = amounts[OWN] if where == node else NOTHING_OWN
        compute, memory, best_effort = (
            left + more for left, more in zip(self.free[row, OWN].tolist(), back, strict=True)
        )
        return compute, memory, best_effort

    def own_beside(self, node: str) -> Own:
        """What of our resources those leave who lie there without a grant, were they alone."""
        held = [one.own for one in self.ungranted.get(node, {}).values()]
        taken = [sum(column) for column in zip(*held, strict=True)] or NOTHING_OWN
        compute, memory, best_effort = (there - less for there, less in zip(self.own_told(node), taken, strict=True))
        return compute, memory, best_effort

    def own_told(self, node: str) -> Own:
        """What a node that is known tells of our resources, whoever holds it."""
        compute, memory, best_effort = self.allocatable[self._rows[node], OWN].tolist()
        return compute, memory, best_effort

    def lasting(self) -> HostInts:
        """What there is but for our own resources: a kubelet tells of none of them while no agent is there."""
        there = self.allocatable.copy()
        there[:, OWN] = UNTOLD
        return there

    def cores_but(self, holder: str) -> Reals:
        """Free cores by row, as if this one held none."""
        node, amounts = self._held.get(holder, ("", _NOTHING))
        row = self._rows.get(node)
        if row is None or self.allocatable[row, CPU] == UNTOLD:
            return self.cores
        cores = self.cores.copy()
        cores[row] += amounts[CPU] / MILLI
        return cores

    def kept_for_nominated(self, nodes: Iterable[str], column: int) -> list[tuple[str, int]]:
        """Which pods that are only nominated for these nodes have something of a column kept there, and how much."""
        there = (
            (pod, self._held[uid][1][column]) for node in nodes for uid, pod in self.nominated.get(node, {}).items()
        )
        return sorted((pod, amount) for pod, amount in there if amount)

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
        before = self._by_node.get(node, _NOTHING)
        total = tuple(there + sign * more for there, more in zip(before, amounts, strict=True))
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


def enough(asked: Sequence[int], left: Sequence[int]) -> bool:
    """Whether of each amount so much is left; of what is not asked for less than nothing may be."""
    return all(not amount or there >= amount for amount, there in zip(asked, left, strict=True))


def enough_rows(asked: Sequence[int], left: HostInts) -> Bools:
    """The same of each row, by its first columns."""
    found: Bools = np.ones(len(left), dtype=np.bool_)
    for column, amount in enumerate(asked):
        if amount:
            found &= left[:, column] >= amount
    return found


def _forget(of: dict[str, dict[str, _Mark]], node: str, holder: str) -> None:
    there = of.get(node, {})
    if there.pop(holder, None) and not there:
        del of[node]


def _array(rows: int) -> HostInts:
    # Column after column, as the grid's.
    return np.zeros((rows, len(_NOTHING)), dtype=np.int64, order="F")


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
