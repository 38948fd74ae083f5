"""How much one look tries of plans with moves (`rearranging.py`), and where each begins, so that in time all are tried.

A quarter of all tries is kept for deep plans. A single place that leads nowhere may take all of it, so each look begins
with another way to move others, then with other nodes, then with another place there: in time each has all tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil
from typing import NamedTuple, TypeVar

_Any = TypeVar("_Any")

# For whom others are moved, for each of those once more, and so on: first as shallow as can be, since less is moved.
DEPTHS = (1, 4)
# Whether pods may be moved that no controller makes anew, and whether whoever may do both is moved and does not go: the
# least harm comes first.
WAYS = tuple(product((False, True), (False, True)))
# The cheapest nodes are tried, so many at once. The next look goes on from there.
AT_ONCE = 4
MOST_NODES = 32


class Patience:
    """How many places may still be tried in one look: nobody is answered meanwhile, and each takes 0.5 ms."""

    def __init__(self, tries: int) -> None:
        # What may be tried now, and what is kept for ways that come later.
        self._left, self._later = tries, 0
        # Of one owner: whether there were nodes that nobody looked at, and whether it was over before all was tried.
        self._left_out = self.is_over = False

    @property
    def left(self) -> int:
        """How many in all."""
        return self._left + self._later

    def begin(self) -> None:
        """Another owner's search."""
        self._left_out = self.is_over = False

    def keep_for_deep_plans(self) -> None:
        """Shallow ones come first, and may take whatever there is."""
        left = self.left
        self._later = left // 4
        self._left = left - self._later

    def go_deep(self) -> None:
        """Whatever is left is for deep ones."""
        self._left, self._later = self.left, 0

    def one_more(self) -> bool:
        """Whether one more place may be tried."""
        if not self._left:
            self.is_over = True
            return False
        self._left -= 1
        return True

    def pass_over(self) -> None:
        """There are nodes that nobody looks at."""
        self._left_out = True

    @property
    def sufficed(self) -> bool:
        """Whether all was tried that there is to try."""
        return not self.is_over and not self._left_out

    @property
    def reached(self) -> int:
        """By how many nodes the next look may begin later: all were tried, or it was over among the first."""
        return AT_ONCE if self.is_over else MOST_NODES


class Start(NamedTuple):
    """Where an owner's search begins: at which node, and in which look for it."""

    node: int = 0
    look: int = 0

    def later(self, *, nodes: int) -> Start:
        """The next look's, so many nodes later."""
        return Start(node=self.node + nodes, look=self.look + 1)

    def ways(self, *, deepest: int) -> list[tuple[bool, bool]]:
        """In this order."""
        return turned(WAYS, by=0 if deepest <= DEPTHS[0] else self.look)

    def of(self, nodes: int, *, deepest: int) -> tuple[int, int]:
        """Of so many nodes the first, and by how many places later it begins there."""
        if deepest <= DEPTHS[0]:
            return self.node, self.node // max(nodes, 1)
        turn, part = divmod(self.look // len(WAYS), ceil(nodes / AT_ONCE) or 1)
        return part * AT_ONCE, turn


FIRST = Start()


def turned(some: Sequence[_Any], *, by: int) -> list[_Any]:
    """The same, begun so many later."""
    first = by % len(some) if some else 0
    return [*some[first:], *some[:first]]
