"""Queues that keep more idle than there is: nobody else is let in, and no queue by itself looks wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aliquot_scheduler.queues.said.things import quota_of
from aliquot_scheduler.queues.said.tree import ROOT, Node, Tree
from aliquot_scheduler.queues.said.units import bare, spoken


def kept_beyond_all(tree: Tree, *, capacity: Sequence[int], or_all: bool = False) -> dict[str, tuple[str, ...]]:
    """By queue, what is wrong with what it keeps; nothing as long as no cards are known at all.

    `or_all`: also where all is kept and no more. Queues that part all there is between them may be meant so, so that
    is no problem of theirs for good; but whoever writes one is to know that nobody else is let in.
    """
    found: dict[str, list[str]] = {}
    for dimension, there in enumerate(capacity):
        together = _kept_below(tree, tree.nodes[ROOT], dimension)
        too_much = there < together or (or_all and there == together)
        for name, node in tree.nodes.items() if any(capacity) and too_much else ():
            # What is implied goes with a reservation in the other dimension, which is told of by itself.
            if node.kept[dimension] and not node.implied[dimension]:
                said = _said(tree, node.kept[dimension], together, there, dimension)
                found.setdefault(name, []).append(f"queue {name}, lendingLimit: {said}")
    return {name: tuple(said) for name, said in found.items()}


def guaranteed_beyond_all(name: str, tree: Tree, *, capacity: Sequence[int]) -> Iterator[str]:
    """Of models: all together are guaranteed more than there is, of one of which this queue says a guarantee."""
    for dimension, there in enumerate(capacity):
        together, thing = tree.nodes[ROOT].guarantee[dimension], tree.dimensions.thing_of(dimension)
        if thing.pattern and 0 < there < together and quota_of(tree.nodes[name].spec, thing).guarantee:
            said, has = spoken(together, dimension, of=tree.dimensions), bare(there, dimension, of=tree.dimensions)
            yield (
                f"queue {name}, spec.{thing.field}: all queues together are guaranteed {said}, and the cluster has "
                f"{has}: they never have it all at once; guarantee less, or add GPUs"
            )


def _kept_below(tree: Tree, node: Node, dimension: int) -> int:
    below = sum(_kept_below(tree, tree.nodes[child], dimension) for child in node.children)
    return min(node.ceiling[dimension], max(node.kept[dimension], below))


def _said(tree: Tree, kept: int, together: int, there: int, dimension: int) -> str:
    own = spoken(kept, dimension, of=tree.dimensions)
    all_kept, has = (bare(amount, dimension, of=tree.dimensions) for amount in (together, there))
    others = "" if kept == together else f" (all queues together {all_kept})"
    if not there:
        return f"it keeps {own} idle, and the cluster has no such GPU; mend the pattern, or add GPUs"
    return (
        f"it keeps {own} idle{others}, and the cluster has {has}: nobody else is let in; "
        "guarantee less, lend some of it, or add GPUs"
    )
