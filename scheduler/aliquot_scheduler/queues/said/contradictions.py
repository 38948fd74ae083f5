"""What is wrong with queues together, each problem with where it stands and what to do.

A queue that says no guarantee is guaranteed what its children are. So a promise is held against the nearest queue above
that says a guarantee or a limit, however many queues lie between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aliquot_scheduler.queues.said.nesting import wider_than
from aliquot_scheduler.queues.said.spec import QueueError, QueueSpec, Quota
from aliquot_scheduler.queues.said.things import ALL_CARDS, Thing, quota_of, things_of

Specs = Mapping[str, QueueSpec]


class ContradictionError(QueueError):
    """What can't be true of queues together: of which kind it is at its place, and how large."""

    def __init__(self, what: str, *, where: str, remedy: str, kind: str, size: int = 0) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.kind = kind
        self.size = size


def problems_by_queue(specs: Specs) -> dict[str, tuple[str, ...]]:
    """The same in sentences, by the queue that each stands at; who has none is left out."""
    found: dict[str, list[str]] = {}
    for problem in problems_of(specs):
        name = problem.where.removeprefix("queue ").partition(",")[0]
        found.setdefault(name, []).append(str(problem))
    return {name: tuple(said) for name, said in found.items()}


def problems_of(specs: Specs) -> list[ContradictionError]:
    """Everything that is wrong with these queues together, in the order of their names."""
    children = _children(specs)
    models = sorted({model for spec in specs.values() for model in spec.models})
    promised = {thing: _promises(specs, children, thing) for thing in things_of(models)}
    found: list[ContradictionError] = []
    for name, spec in sorted(specs.items()):
        if fault := fault_of(name, specs):
            found.append(fault)
        for thing, promises in promised.items():
            quota, where = quota_of(spec, thing), f"queue {name}, spec.{thing.field}"
            below = [(child, promises[child]) for child in children.get(name, ())]
            wider = wider_than(thing.pattern, models, kinds={})
            limits = [(quota_of(spec, Thing(wide, thing.kind)).limit, wide) for wide in wider]
            found.extend(_contradictions(quota, where=where, below=below))
            found.extend(_beyond_wider(quota, limits, where=where, below=below))
    return found


def fault_of(name: str, specs: Specs) -> ContradictionError | None:
    """Why a queue hangs on nothing; None if it hangs on the root."""
    where, seen, at = f"queue {name}, spec.parent", [name], specs[name].parent
    while at:
        if at not in specs:
            remedy = "create it, or name another parent"
            return ContradictionError(f"there is no queue {at!r}", where=where, remedy=remedy, kind="no parent")
        if at in seen:
            circle = " → ".join([*seen[seen.index(at) :], at])
            said, remedy = f"the queues hang in a circle: {circle}", "give one another parent"
            return ContradictionError(said, where=where, remedy=remedy, kind="circle")
        seen.append(at)
        at = specs[at].parent
    return None


def _children(specs: Specs) -> dict[str, list[str]]:
    """By parent, in the order of their names; those in a circle are nobody's."""
    children: dict[str, list[str]] = {}
    for name in sorted(specs):
        if fault_of(name, specs) is None:
            children.setdefault(specs[name].parent, []).append(name)
    return children


def _promises(specs: Specs, children: Mapping[str, Sequence[str]], thing: Thing) -> dict[str, int]:
    """What each queue is guaranteed by its own word, or else by those of its children."""
    downwards = list(children.get("", ()))
    for name in downwards:
        downwards.extend(children.get(name, ()))
    found: dict[str, int] = {}
    for name in reversed(downwards):
        own = quota_of(specs[name], thing).guarantee
        found[name] = sum(found[child] for child in children.get(name, ())) if own is None else own
    return found


def _contradictions(quota: Quota, *, where: str, below: Sequence[tuple[str, int]]) -> Iterator[ContradictionError]:
    own, limit = quota.guarantee, quota.limit
    if own is not None and limit is not None and limit < own:
        yield ContradictionError(
            f"limit {limit} is below guarantee {own}",
            where=where,
            remedy=f"raise the limit to {own}, or guarantee less",
            kind="limit",
            size=own - limit,
        )
    if own is not None and quota.lending_limit is not None and quota.lending_limit > own:
        yield ContradictionError(
            f"lendingLimit {quota.lending_limit} is above guarantee {own}",
            where=where,
            remedy=f"write at most {own}, or leave it out to lend all",
            kind="lendingLimit",
            size=quota.lending_limit - own,
        )
    together = sum(promised for _, promised in below)
    most, what = (own, "guarantee") if own is not None else (limit, "limit")
    if most is not None and together > most:
        parts = " + ".join(f"{name} {promised}" for name, promised in below if promised)
        yield ContradictionError(
            f"its children are guaranteed {together} ({parts}), more than its own {what} of {most}",
            where=where,
            remedy=f"raise the {what} to {together}, or guarantee the children less",
            kind="children",
            size=together - most,
        )


def _beyond_wider(
    quota: Quota, limits: Sequence[tuple[int | None, str]], *, where: str, below: Sequence[tuple[str, int]]
) -> Iterator[ContradictionError]:
    """Of a model more is guaranteed than may be used of all GPUs, or of those of a pattern that takes these too."""
    together = sum(promised for _, promised in below)
    promised = together if quota.guarantee is None else quota.guarantee
    said = f"its children are guaranteed {together}," if quota.guarantee is None else f"guarantee {promised} is"
    limit, wide = min(((limit, wide) for limit, wide in limits if limit is not None), default=(promised, ALL_CARDS))
    if promised > limit:
        of_what = f"of {wide}, which takes these too" if wide else "of all GPUs"
        yield ContradictionError(
            f"{said} more than limit {limit} {of_what}",
            where=where,
            remedy=f"raise that limit to {promised}, or guarantee less",
            kind="limit of more",
            size=promised - limit,
        )
