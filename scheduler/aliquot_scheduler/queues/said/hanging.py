"""Which queues hang together: what is wrong with a queue's parent, and who hangs below whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from aliquot_scheduler.queues.said.spec import QueueError, QueueSpec

Specs = Mapping[str, QueueSpec]


class Kind(Enum):
    """In which way something is wrong; what was wrong before in the same way, and is no worse, refuses no change."""

    NO_PARENT = auto()
    CIRCLE = auto()
    LENDING = auto()
    # Children are guaranteed more than is said of their parent.
    CHILDREN = auto()
    # More is guaranteed than a limit lets be used of it, or of what it lies within; or than may be borrowed of that.
    LIMIT = auto()
    LIMIT_OF_MORE = auto()
    USE_OF_MORE = auto()


class ContradictionError(QueueError):
    """What can't be true of queues together: of which kind it is at its place, and how large."""

    def __init__(
        self, what: str, *, where: str, remedy: str, kind: Kind, size: int = 0, is_refused: bool = True
    ) -> None:
        """Who writes it `is_refused`; or is only warned, where another queue's change would be refused for it."""
        super().__init__(what, where=where, remedy=remedy)
        self.kind = kind
        self.size = size
        self.is_refused = is_refused


def fault_of(name: str, specs: Specs) -> ContradictionError | None:
    """Why a queue hangs on nothing; None if it hangs on the root."""
    where, seen, at = f"queue {name}, spec.parent", [name], specs[name].parent
    while at:
        if at not in specs:
            remedy = "create it, or name another parent"
            return ContradictionError(f"there is no queue {at!r}", where=where, remedy=remedy, kind=Kind.NO_PARENT)
        if at in seen:
            circle = " → ".join([*seen[seen.index(at) :], at])
            said, remedy = f"the queues hang in a circle: {circle}", "give one another parent"
            return ContradictionError(said, where=where, remedy=remedy, kind=Kind.CIRCLE)
        seen.append(at)
        at = specs[at].parent
    return None


def children_of(good: Specs, *, root: str) -> dict[str, list[str]]:
    """By queue, those that hang below it, in the order of their names; all of them hang on the root."""
    children: dict[str, list[str]] = {name: [] for name in (root, *good)}
    for name in sorted(good):
        children[good[name].parent].append(name)
    return children


def downwards(children: Mapping[str, Sequence[str]], *, root: str) -> list[str]:
    """Every name, parents before their children."""
    order = [root]
    for name in order:
        order.extend(children[name])
    return order
