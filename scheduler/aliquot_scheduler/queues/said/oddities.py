"""What a queue says in vain: nothing is wrong with the tree, but its author may have meant something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from aliquot_scheduler.queues.said.dues import kept_of
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.things import KINDS, Thing, quota_of, things_of
from aliquot_scheduler.queues.said.tree import COMPUTE, MEMORY, ROOT, Node, Tree, plant

# What of a pattern stands for any characters; and what is in no namespace's name.
_WILD = re.compile(r"[*?]|\[[^\]]*\]")
# Fewer MiB, or less percent of a GPU, are hardly of use to anybody.
_GIB, _LEAST_PERCENT, _GPU = 1024, 10, 100
_NO_NAME = re.compile(r"[^a-z0-9-]")


def oddities_of(name: str, specs: Mapping[str, QueueSpec]) -> Iterator[str]:
    """What of one queue has no effect, in sentences."""
    spec, tree = specs[name], plant(specs)
    parent = specs.get(spec.parent)
    above = dict(_quotas(parent)) if parent else {}
    for thing, quota in _quotas(spec):
        above_it = _above(quota, above.get(thing), parent=spec.parent)
        for said in (*_units(thing, quota), *_lending(quota), *_borrowing(quota), *above_it):
            yield f"queue {name}, spec.{thing.field}: {said}"
    yield from _weightless(name, tree)
    yield from _half_closed(name, tree)
    yield from _starved(name, specs)
    yield from _kept_for_nobody(name, tree)
    yield from _together(name, tree)
    for pattern in spec.namespaces:
        if _NO_NAME.search(_WILD.sub("", pattern)):
            yield f"queue {name}, spec.namespaces: {pattern!r} takes no namespace: names are of a-z, 0-9 and - alone"
    if spec.namespaces and any(other.parent == name for other in specs.values()):
        yield f"queue {name}, spec.namespaces does nothing: pods wait in the queues below it"
    if not spec.autoscale and spec.autoscale_minutes != QueueSpec().autoscale_minutes:
        yield f"queue {name}, spec.autoscaleMinutes does nothing without autoscale"


def _quotas(spec: QueueSpec) -> Iterator[tuple[Thing, Quota]]:
    for thing in things_of(spec.models):
        yield thing, quota_of(spec, thing)


def _units(thing: Thing, quota: Quota) -> Iterator[str]:
    """What is so little that GPUs, or GiB, may have been meant."""
    for field, amount in (("guarantee", quota.guarantee), ("limit", quota.limit)):
        if not amount:
            continue
        if thing.kind == "memory" and amount < _GIB:
            yield f"{field} {amount} is {amount} MiB; write {amount * _GIB} if so many GiB were meant"
        elif thing.kind == "compute" and amount < _LEAST_PERCENT:
            yield f"{field} {amount} is {amount} % of one GPU; write {amount * _GPU} if so many whole ones were meant"


def _weightless(name: str, tree: Tree) -> Iterator[str]:
    """Closed by a weight, which may have been meant as the least part; not where a limit says that it is closed."""
    if name not in tree.nodes:
        return
    for dimension, kind in enumerate(KINDS):
        if _closed_by_weight(tree.nodes[name], dimension):
            yield (
                f"queue {name}, spec.{kind}: none of it may be used: of weight 0 it borrows nothing, and it is "
                "guaranteed nothing; give it a weight or a guarantee, or write limit: 0 to close it"
            )


def _closed_by_weight(node: Node, dimension: int) -> bool:
    """Whether none of it may be used for the weight alone, and no limit says that the queue is closed."""
    quotas = (node.spec.compute, node.spec.memory)
    if any(quota.limit == 0 for quota in quotas):
        return False
    return quotas[dimension].weight == 0 and not node.ceiling[dimension]


def _lending(quota: Quota) -> Iterator[str]:
    if quota.lending_limit is not None and not quota.guarantee:
        yield "lendingLimit does nothing: there is no guarantee to lend of"


def _borrowing(quota: Quota) -> Iterator[str]:
    if quota.borrowing_limit is None:
        return
    most = (quota.guarantee or 0) + quota.borrowing_limit
    if quota.weight == 0 and quota.borrowing_limit:
        yield f"borrowingLimit {quota.borrowing_limit} does nothing: a queue of weight 0 borrows nothing"
    elif quota.limit is not None and most > quota.limit:
        yield f"borrowingLimit would allow {most} in all, but limit {quota.limit} comes before that"


def _above(quota: Quota, above: Quota | None, *, parent: str) -> Iterator[str]:
    if above is None or above.limit is None:
        return
    if quota.limit is not None and quota.limit > above.limit:
        yield f"limit {quota.limit} is never reached: queue {parent} above it has limit {above.limit}"


def _half_closed(name: str, tree: Tree) -> Iterator[str]:
    """Closed for compute, which may be meant as closed at all: pods that ask for memory alone come in all the same."""
    if name not in tree.nodes:
        return
    own, path = tree.nodes[name].ceiling, [tree.nodes[one].ceiling for one in tree.path(name)]
    # Compute and memory by turns: of all GPUs, then of each model.
    for compute in range(COMPUTE, tree.dimensions.cards, 2):
        if own[compute] or not all(ceiling[MEMORY] and ceiling[compute + 1] for ceiling in path):
            continue
        if not (model := tree.dimensions.model_of(compute)):
            if _closed_by_weight(tree.nodes[name], COMPUTE):
                # That is told, with how to close it.
                continue
            remedy = "memory: {limit: 0}"
        elif own[COMPUTE]:
            remedy = f"models: {{{model!r}: {{memory: {{limit: 0}}}}}}"
        else:
            continue
        yield (
            f"queue {name}, spec.{tree.dimensions.thing_of(compute).field}: none of it may be used, but pods that ask "
            f"for memory alone come in all the same: write {remedy} too, if they are not to"
        )


def _starved(name: str, specs: Mapping[str, QueueSpec]) -> Iterator[str]:
    """It, or one that it keeps it from, is beside others that keep all there is, asked for or not."""
    above = specs[name].parent
    limits = dict(_quotas(specs[above])) if above in specs else {}
    siblings = sorted(other for other, spec in specs.items() if spec.parent == above)
    for thing, limit in ((thing, quota.limit) for thing, quota in limits.items() if quota.limit):
        kept = {other: kept_of(dict(_quotas(specs[other])).get(thing, Quota())) for other in siblings}
        for starved in siblings:
            keepers = [f"{other} {kept[other]}" for other in siblings if kept[other] and other != starved]
            if sum(kept.values()) - kept[starved] >= limit and (starved == name or kept[name]):
                yield (
                    f"queue {starved}, spec.{thing.field}: it gets nothing, ever: of the {limit} that queue {above} "
                    f"may have those beside it keep all, idle or not (lendingLimit: {', '.join(keepers)})"
                )


def _kept_for_nobody(name: str, tree: Tree) -> Iterator[str]:
    """It, or a queue above it, keeps more idle than those below may ever use."""
    for one in tree.path(name):
        for dimension, kept in enumerate(tree.nodes[one].kept):
            usable = _usable_below(one, tree, dimension)
            if one != ROOT and kept > usable:
                yield (
                    f"queue {one}, spec.{tree.dimensions.thing_of(dimension).field}: it keeps {kept} idle, and the "
                    f"queues below it may use {usable} by their limits: {kept - usable} idles for good; raise those, "
                    f"or lendingLimit by {kept - usable}"
                )


def _usable_below(name: str, tree: Tree, dimension: int) -> int:
    """As far as the ceilings there let it be used; of a queue that has none below it, its own."""
    node = tree.nodes[name]
    if not node.children:
        return _usable(node, tree, dimension)
    return sum(
        min(_usable(tree.nodes[one], tree, dimension), _usable_below(one, tree, dimension)) for one in node.children
    )


def _usable(node: Node, tree: Tree, dimension: int) -> int:
    """As far as its own ceiling there, and of what that lies within, lets it be used."""
    return min(node.ceiling[one] for one in (dimension, *tree.within[dimension]))


def _together(name: str, tree: Tree) -> Iterator[str]:
    """Of several models it, or a queue above it, keeps or is guaranteed more than it may use of all of them at once."""
    for node in (tree.nodes[one] for one in tree.path(name) if one != ROOT):
        for wide, most in enumerate(node.ceiling[: tree.dimensions.cards]):
            of_what = f"of {tree.dimensions.model_of(wide)}" if tree.dimensions.model_of(wide) else "of all GPUs"
            kept, kept_parts = _sum_inside(wide, node.kept, tree)
            promised, parts = _sum_inside(wide, node.guarantee, tree)
            if kept > most:
                yield (
                    f"queue {node.name}, spec.models: it keeps {kept} of {KINDS[wide % 2]} idle "
                    f"({kept_parts}), and may use {most} {of_what}: {kept - most} "
                    "idles for good; raise that limit, or lend some"
                )
            elif promised > most:
                yield (
                    f"queue {node.name}, spec.models: it is guaranteed {promised} of {KINDS[wide % 2]} ({parts}), and "
                    f"may use {most} {of_what}: never all of it at once; raise that limit, or guarantee less"
                )


def _sum_inside(wide: int, amounts: Sequence[int], tree: Tree) -> tuple[int, str]:
    """Of all that lies within one dimension; what lies within another one of these counts once."""
    inside = [dim for dim, wider in enumerate(tree.within) if wide in wider and amounts[dim]]
    apart = [dim for dim in inside if not set(tree.within[dim]) & set(inside)]
    parts = " + ".join(f"{tree.dimensions.model_of(dim)} {amounts[dim]}" for dim in apart)
    return sum(amounts[dim] for dim in apart), parts
