"""What is wrong with queues together, each problem with where it stands and what to do.

What is guaranteed, and what cuts it, is worked out by the rule that trees are planted by (`guarantees.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot_scheduler.queues.said.guarantees import Bound, Guarantees
from aliquot_scheduler.queues.said.hanging import ContradictionError, Kind, Specs, children_of, downwards, fault_of
from aliquot_scheduler.queues.said.nesting import within
from aliquot_scheduler.queues.said.spec import QueueSpec, Quota
from aliquot_scheduler.queues.said.things import patterns_of, quota_of, things_of
from aliquot_scheduler.queues.said.tree import ROOT, Tree, Vector, models_of


def problems_by_queue(specs: Specs) -> dict[str, tuple[str, ...]]:
    """The same in sentences, by the queue that each stands at; who has none is left out."""
    return _by_queue(problems_of(specs))


def problems_by_cards(tree: Tree) -> dict[str, tuple[str, ...]]:
    """What is wrong beside that, since by the models that are there one pattern lies within another."""
    inside = tree.within[: tree.dimensions.cards]
    if inside == within(patterns_of(tree.dimensions.models), kinds={}):
        return {}
    specs = {name: node.spec for name, node in tree.nodes.items() if name != ROOT}
    plain = {str(problem) for problem in problems_of(specs)}
    return _by_queue([problem for problem in problems_of(specs, inside=inside) if str(problem) not in plain])


def problems_of(specs: Specs, *, inside: Sequence[Vector] | None = None) -> list[ContradictionError]:
    """Everything that is wrong with these queues together, in the order of their names.

    `inside` is within which others each dimension lies; without it that is said by how patterns are written alone.
    """
    faults = {name: fault for name in sorted(specs) if (fault := fault_of(name, specs))}
    # Who hangs on nothing is judged by itself as well.
    alone = {name: msgspec.structs.replace(specs[name], parent=ROOT) for name in faults}
    judging, found = _Judging({**specs, **alone}, inside=inside), list[ContradictionError]()
    for name in sorted(specs):
        found.extend([faults[name]] if name in faults else [])
        found.extend(judging.problems(name))
    return found


def _by_queue(problems: Sequence[ContradictionError]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for problem in problems:
        name = problem.where.removeprefix("queue ").partition(",")[0]
        found.setdefault(name, []).append(str(problem))
    return {name: tuple(said) for name, said in found.items()}


class _Judging:
    """Queues that all hang on the root."""

    def __init__(self, specs: Specs, *, inside: Sequence[Vector] | None) -> None:
        models = models_of(specs)
        self._things = things_of(models)
        self._children = children_of(specs, root=ROOT)
        order = downwards(self._children, root=ROOT)
        self._quotas = {
            name: [quota_of(specs.get(name, QueueSpec()), thing) for thing in self._things] for name in order
        }
        if inside is None:
            inside = within(patterns_of(models), kinds={})
        self._guarantees = Guarantees(order=order, children=self._children, quotas=self._quotas, within=inside)

    def problems(self, name: str) -> Iterator[ContradictionError]:
        """Of one queue."""
        for dimension, thing in enumerate(self._things):
            where, quota = f"queue {name}, spec.{thing.field}", self._quotas[name][dimension]
            yield from _lending(quota, where=where)
            yield from self._children_beyond(name, dimension, where=where)
            yield from self._beyond_bounds(name, dimension, where=where)

    def _children_beyond(self, name: str, dimension: int, *, where: str) -> Iterator[ContradictionError]:
        """Beyond what is said of it; or, where nothing is, beyond the limit there."""
        quota, together = self._quotas[name][dimension], self._guarantees.below(name, dimension)
        most, what = (quota.limit, "limit") if quota.guarantee is None else (quota.guarantee, "guarantee")
        if most is not None and together > most:
            promised = self._guarantees.promised
            parts = [(child, promised[child][dimension]) for child in self._children[name]]
            said = " + ".join(f"{child} {part}" for child, part in parts if part)
            yield ContradictionError(
                f"its children are guaranteed {together} ({said}), more than its own {what} of {most}",
                where=where,
                remedy=f"raise the {what} to {together}, or guarantee the children less",
                kind=Kind.CHILDREN,
                size=together - most,
            )

    def _beyond_bounds(self, name: str, dimension: int, *, where: str) -> Iterator[ContradictionError]:
        """Beyond what its words let be used of it, or of what it lies within: of each kind of word the least counts."""
        own, together = self._quotas[name][dimension].guarantee, self._guarantees.below(name, dimension)
        promised = together if own is None else own
        said = f"its children are guaranteed {promised}," if own is None else f"guarantee {promised} is"
        least: dict[Kind, Bound] = {}
        for bound in sorted(self._guarantees.broken[name, dimension]):
            least.setdefault(_kind(bound, dimension), bound)
        if own is None:
            # That is told of the children.
            least.pop(Kind.LIMIT, None)
        for kind, bound in least.items():
            if promised > bound.most:
                yield ContradictionError(
                    f"{said} more than {self._in_words(bound, dimension)}",
                    where=where,
                    remedy=_remedy(bound, promised=promised),
                    kind=kind,
                    size=promised - bound.most,
                    is_refused=bound.is_own,
                )

    def _in_words(self, bound: Bound, dimension: int) -> str:
        if bound.dimension == dimension:
            return f"its own limit of {bound.most}"
        thing = self._things[bound.dimension]
        of_what = f"of {thing.pattern}, which takes these too" if thing.pattern else "of all GPUs"
        if bound.is_limit:
            return f"limit {bound.most} {of_what}"
        most, own = bound.most, bound.guarantee
        return f"the {most} that it may use {of_what}, where it is guaranteed {own} and may borrow {most - own}"


def _lending(quota: Quota, *, where: str) -> Iterator[ContradictionError]:
    own = quota.guarantee
    if own is not None and quota.lending_limit is not None and quota.lending_limit > own:
        yield ContradictionError(
            f"lendingLimit {quota.lending_limit} is above guarantee {own}",
            where=where,
            remedy=f"write at most {own}, or leave it out to lend all",
            kind=Kind.LENDING,
            size=quota.lending_limit - own,
        )


def _kind(bound: Bound, dimension: int) -> Kind:
    if not bound.is_limit:
        return Kind.USE_OF_MORE
    return Kind.LIMIT if bound.dimension == dimension else Kind.LIMIT_OF_MORE


def _remedy(bound: Bound, *, promised: int) -> str:
    if bound.is_limit:
        return f"raise that limit to {promised}, or guarantee less"
    return f"guarantee it {promised - bound.most + bound.guarantee} there, or let it borrow more; or guarantee less"
