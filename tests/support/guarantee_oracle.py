"""What guarantees lack, worked out by serving them: no number is taken from the ledger that decisions are made by.

`lacking` is how much of all that is guaranteed and demanded can't be served, with what is free and under the ceilings.
Guarantees are served from the leaves up, one after the other, each as far as what is left lets it. What they come to
without any scarcity is the dearest choice of queues none of which lies below another: what is served of one queue's
guarantee is served of those above it too.

A guarantee serves whole portions: what is let in at once and is larger than all that is missing of it demands none of
it, and what is kept idle of it, by the queue or below it, is kept all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from aliquot_scheduler.queues.said.tree import ROOT, Node, Tree

PLENTY = 2**62


class Portion(NamedTuple):
    """What waits in a queue to be let in at once: all of it, what limits have to let in of that, and what is firm."""

    queue: str
    amounts: tuple[int, ...]
    least: tuple[int, ...]
    firm: tuple[int, ...] = ()
    # It asks, and demands no guarantee.
    quiet: bool = False
    # And is due no share.
    awaits_node: bool = False


class Wish(NamedTuple):
    """So much is asked at once, and demands the guarantees of these queues."""

    amount: int
    of: frozenset[str]


def demanding(
    portions: Iterable[Portion], tree: Tree, *, used: Mapping[str, Sequence[int]], firm: Mapping[str, Sequence[int]]
) -> list[tuple[Portion, frozenset[str]]]:
    """Those whom no limit keeps out, and which queues' guarantees they demand.

    `used` is of each queue with those below it, `firm` of each queue itself.
    """
    return [
        (one, below)
        for one in portions
        if not _is_unsure(one, tree, firm) and (below := _below_limits(one, tree, used)) is not None
    ]


def wishes(found: Iterable[tuple[Portion, frozenset[str]]], dimension: int) -> dict[str, list[Wish]]:
    """What is asked of one dimension, by queue."""
    asked: dict[str, list[Wish]] = {}
    for one, of in found:
        asked.setdefault(one.queue, []).append(Wish(one.amounts[dimension], of))
    return asked


def _is_unsure(one: Portion, tree: Tree, firm: Mapping[str, Sequence[int]]) -> bool:
    given, due = firm.get(one.queue, ()), tree.nodes[one.queue].due
    return any(
        amount and amount + (given[dim] if given else 0) > due[dim]
        for dim, amount in enumerate(one.firm[: tree.dimensions.cards])
    )


def _below_limits(one: Portion, tree: Tree, used: Mapping[str, Sequence[int]]) -> frozenset[str] | None:
    """All queues on its way that are below each limit that is full; None if nobody there is guaranteed what it asks."""
    path = [tree.nodes[name] for name in tree.path(one.queue)]
    found = frozenset(node.name for node in path)
    for place, node in enumerate(path):
        for dim, amount in enumerate(one.least):
            if node.name == ROOT or not amount or used[node.name][dim] + amount <= node.ceiling[dim]:
                continue
            # Else it is others who have borrowed what one below the limit is guaranteed.
            if all(used[below.name][dim] + amount > below.guarantee[dim] for below in path[:place]):
                return None
            found &= {below.name for below in path[:place]}
    return found


class Guarantees:
    """One instant of one dimension."""

    def __init__(
        self, tree: Tree, *, dimension: int, used: Mapping[str, int], asked: Mapping[str, Sequence[Wish]], free: int
    ) -> None:
        """`used` and `asked` are of each queue itself, without those below it; what is asked is in portions."""
        self._tree = tree
        self._dimension = dimension
        self._free = free
        self._own = used
        self._portions = asked
        self._asked = {
            name: total for name, portions in asked.items() if (total := sum(one.amount for one in portions))
        }
        self._upwards = sorted((node for node in tree.nodes.values() if node.name != ROOT), key=_height)
        self._used = {
            node.name: sum(amount for name, amount in used.items() if node.name in tree.path(name))
            for node in self._upwards
        }

    def lacking(self) -> int:
        """What is guaranteed and demanded, and can't be served."""
        return self._dearest(self._upwards, self._missing()) - self.served()

    def unasked(self) -> Guarantees:
        """The same if nobody asked: what is demanded then is what is kept idle."""
        return Guarantees(self._tree, dimension=self._dimension, used=self._own, asked={}, free=self._free)

    def served(self, *, plenty: bool = False) -> int:
        """How much of what is guaranteed and demanded can be served; or could be if anything were free."""
        serving = _Serving(self, free=PLENTY if plenty else self._free)
        for node in self._upwards:
            serving.up_to(self._guarantee(node), node)
        return serving.given[ROOT]

    def _missing(self) -> dict[str, int]:
        """Of each guarantee, as far as it is demanded: all that could be used at once, whatever is guaranteed."""
        found: dict[str, int] = {}
        for node in self._upwards:
            serving = _Serving(self, free=PLENTY, top=node.name)
            for below in self._upwards:
                if node.name in below.path:
                    serving.up_to(PLENTY, below)
            demanded = serving.given[node.name]
            found[node.name] = min(demanded, max(0, self._guarantee(node) - self._used[node.name]))
        return found

    def _guarantee(self, node: Node) -> int:
        """As far as what is asked would fit in it."""
        return fitting(node, self._tree, dimension=self._dimension, used=self._used, asked=self._portions)

    def _dearest(self, choice: Sequence[Node], price: Mapping[str, int]) -> int:
        """The most that nodes of which none lies below another come to."""
        if not choice:
            return 0
        highest, rest = choice[-1], choice[:-1]
        apart = [node for node in rest if highest.name not in node.path]
        return max(price[highest.name] + self._dearest(apart, price), self._dearest(rest, price))

    # --- for serving -------------------------------------------------------------------------------------------------
    def left(self, free: int) -> dict[str, int]:
        """How much more each queue, and all together, may use."""
        rooms = {node.name: max(0, node.ceiling[self._dimension] - self._used[node.name]) for node in self._upwards}
        return rooms | {ROOT: free}

    def askers(self, node: Node) -> Iterator[tuple[str, int]]:
        """Who asks in a queue, or below it."""
        return ((name, amount) for name, amount in self._asked.items() if node.name in self._tree.path(name))

    def used(self, node: Node) -> int:
        """What a queue uses."""
        return self._used[node.name]

    def idle(self, node: Node) -> int:
        """What it keeps of its guarantee, whoever asks."""
        return node.kept[self._dimension]

    def path(self, name: str, top: str) -> Sequence[str]:
        """From a queue up to another."""
        path = self._tree.path(name)
        return path[: path.index(top) + 1]


class _Serving:
    """Gives out what is left."""

    def __init__(self, state: Guarantees, *, free: int, top: str = ROOT) -> None:
        self._state = state
        self._top = top
        self._left = state.left(free)
        self._had: dict[str, int] = {}
        self.given = dict.fromkeys(self._left, 0)

    def up_to(self, guarantee: int, node: Node) -> None:
        """Serve a queue's guarantee from what is asked below it, then what it keeps idle."""
        for name, asked in self._state.askers(node):
            missing = guarantee - self._state.used(node) - self.given[node.name]
            had = self._had.get(name, 0)
            self._had[name] = had + self._give(name, min(asked - had, missing))
        self._give(node.name, self._state.idle(node) - self._state.used(node) - self.given[node.name])

    def _give(self, name: str, most: int) -> int:
        path = self._state.path(name, self._top)
        amount = max(0, min(most, *(self._left[above] for above in path)))
        for above in path:
            self._left[above] -= amount
            self.given[above] += amount
        return amount


def kept_idle(tree: Tree, *, dimension: int, used: Mapping[str, int], name: str = ROOT) -> int:
    """How much is kept idle at a queue and below; `used` is of each queue with those below it."""
    node = tree.nodes[name]
    below = sum(kept_idle(tree, dimension=dimension, used=used, name=child) for child in node.children)
    room = max(0, node.ceiling[dimension] - used[name])
    return min(room, max(below, node.kept[dimension] - used[name]))


def fitting(
    node: Node, tree: Tree, *, dimension: int, used: Mapping[str, int], asked: Mapping[str, Sequence[Wish]]
) -> int:
    """A queue's guarantee, as far as it is in use, kept idle, or asked there and below by who would fit as a whole."""
    guarantee, own = node.guarantee[dimension], used[node.name]
    below = [one.amount for portions in asked.values() for one in portions if node.name in one.of]
    whole = sum(portion for portion in below if portion <= guarantee - own)
    idle = sum(kept_idle(tree, dimension=dimension, used=used, name=child) for child in node.children)
    return min(guarantee, own + max(whole + idle, node.kept[dimension] - own))


def _height(node: Node) -> tuple[int, str]:
    return -len(node.path), node.name
