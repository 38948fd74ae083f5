"""What all were due a moment ago, and what follows from it: until a second is over, or queues are others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aliquot_scheduler.queues.letting_in.siblings import Dues, Left, Sibling, Side
from aliquot_scheduler.queues.said.tree import Tree

# Seconds for which what all are due is not worked out anew: with hundreds of queues it costs more than all else of a
# sweep, and in so little time it is not what moves.
_DUE_FOR = 1.0


class KnownDues:
    """Of one tree, at one instant."""

    def __init__(self) -> None:
        # In which tree, and when.
        self._due: tuple[Tree, float, Dues] | None = None
        # The same of queues among those below one, with what they used lately; and what that leaves to each of them
        # that holds so much: what a queue uses changes with each pod.
        self.siblings: dict[str, Mapping[Side, Sibling]] = {}
        self.left: dict[Side, tuple[Sequence[int], Left]] = {}

    def due(self, tree: Tree, *, now: float, work_out: Callable[[], Dues]) -> Dues:
        """What each queue is due, or was a moment ago."""
        if self._due is None or self._due[0] is not tree or not 0.0 <= now - self._due[1] < _DUE_FOR:
            self._due = tree, now, work_out()
            self.siblings.clear()
            self.left.clear()
        return self._due[2]

    def clear(self) -> None:
        """Everything has changed."""
        self._due = None
