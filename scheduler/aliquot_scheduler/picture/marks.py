"""Labels and taints of nodes, and which nodes suit a pod by them: asked for every turn, so answers are kept.

Theory of operation. Taints come in few kinds, however many nodes: what is tolerated is asked of each kind. Labels are
asked of all nodes at once (`labels.py`), once for all pods that want the same; then of each node that has changed
since, unless they are many. A pod that wants nothing of labels costs no look at any node.

What must always hold: an answer is the one that asking every node would give (`node_rules.py`); what was handed out
never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from aliquot_core.node_rules import ANY_NODE, Wanted, barrier, why_unsuited
from aliquot_core.objects import Node, Taint, Toleration
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.picture.grid import Bools
from aliquot_scheduler.picture.labels import Labels

Taints = tuple[Taint, ...]
Tolerations = tuple[Toleration, ...]
_Asked = TypeVar("_Asked", Tolerations, Wanted)
# 1 kB each at 1,000 nodes; those that were used last.
_KEPT = 256
# Of so many nodes each by itself is quicker than all at once.
_FEW = 8


class Marks:
    """By row of the grid."""

    def __init__(self, *, rows: int) -> None:
        # Change whenever any node's labels, or its labels or taints, do.
        self.labels_version = 0
        self.version = 0
        self._nodes: dict[int, Node] = {}
        self._labels = Labels()
        self._kinds: list[Taints] = [()]
        self._numbers: dict[Taints, int] = {(): 0}
        self._kind: npt.NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self._relabelled = RowChanges(rows)
        self._tolerating: dict[Tolerations, tuple[int, Bools]] = {}
        self._wanted: dict[Wanted, tuple[int, Bools]] = {}

    def node_seen(self, node: Node, *, row: int, rows: int) -> None:
        """A node is there, or is changed; the grid has so many rows."""
        if rows > self._kind.size:
            self._kind = np.concatenate([self._kind, np.zeros(rows - self._kind.size, dtype=np.int32)])
            self._relabelled.all_anew(rows)
        before = self._nodes.get(row)
        self._nodes[row] = node
        if before is None or before.spec.taints != node.spec.taints:
            self._kind[row] = self._number(node.spec.taints)
            self.version += 1
        if before is None or _marks(before) != _marks(node):
            self._labels.put(row, before=before, after=node)
            self._relabelled.note(row)
            self.labels_version += 1
            self.version += 1

    def node_gone(self, row: int) -> None:
        """Nobody is in this row any more."""
        if gone := self._nodes.pop(row, None):
            self._labels.put(row, before=gone, after=None)
            self._kind[row] = 0
            self._relabelled.note(row)
            self.labels_version += 1
            self.version += 1

    def taints_of(self, row: int) -> Taints:
        """What keeps pods off this row's node."""
        return self._kinds[int(self._kind[row])]

    def tolerating(self, tolerations: Tolerations) -> Bools:
        """Where none of the taints keeps a pod off that tolerates these."""
        kept = self._tolerating.pop(tolerations, None)
        if kept is None or kept[0] != self.version:
            open_kinds = [barrier(taints, tolerations) is None for taints in self._kinds]
            kept = self.version, np.array(open_kinds, dtype=np.bool_)[self._kind]
        return _keep(self._tolerating, tolerations, kept)

    def wanted(self, wanted: Wanted) -> Bools:
        """Which nodes have the labels, or the name, that are wanted."""
        if wanted == ANY_NODE:
            return np.ones(self._kind.size, dtype=np.bool_)
        then, found = self._wanted.pop(wanted, (-1, np.zeros(0, dtype=np.bool_)))
        if then != self._relabelled.now:
            changed = np.flatnonzero(self._relabelled.since(then)).tolist()
            if len(changed) > _FEW or found.size < self._kind.size:
                found = self._labels.suiting(wanted, rows=self._kind.size)
            else:
                # What was handed out stays as it was.
                found = found.copy()
                for row in changed:
                    found[row] = self._suits(row, wanted)
        return _keep(self._wanted, wanted, (self._relabelled.now, found))

    def _suits(self, row: int, wanted: Wanted) -> bool:
        node = self._nodes.get(row)
        return node is not None and not why_unsuited(wanted, name=node.metadata.name, labels=node.metadata.labels)

    def _number(self, taints: Taints) -> int:
        if taints not in self._numbers:
            self._numbers[taints] = len(self._kinds)
            self._kinds.append(taints)
        return self._numbers[taints]


def _marks(node: Node) -> tuple[str, Mapping[str, str]]:
    return node.metadata.name, node.metadata.labels


def _keep(kept: dict[_Asked, tuple[int, Bools]], asked: _Asked, answer: tuple[int, Bools]) -> Bools:
    """Those that were used last come last."""
    kept[asked] = answer
    if len(kept) > _KEPT:
        del kept[next(iter(kept))]
    return answer[1]
