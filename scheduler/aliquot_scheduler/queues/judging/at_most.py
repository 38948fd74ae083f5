"""The most that a pod may come to: claims are the most that is held of each GPU at one time (`aliquot_core.claims`).

Containers that may share a GPU count each by itself. An init container runs on its app containers' GPUs and before
them, so it counts for what it asks beyond the least that any of those holds there, and in full on GPUs that it needs
in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aliquot_core.request import Kind
from aliquot_scheduler.fit.demand import Demand, Piece, pieces_of

# Percent and MiB.
Part = tuple[int, int]


def most_of(demand: Demand, taken: Callable[[Piece], Part]) -> Part:
    """All parts together; `taken` says what a piece takes of a GPU."""
    parts = list(_parts(demand, taken))
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def _parts(demand: Demand, taken: Callable[[Piece], Part]) -> Iterator[Part]:
    if demand.pieces is not None:
        yield from map(taken, demand.pieces)
        return
    parts = [(one.kind, [taken(piece) for piece in pieces_of(one)]) for one in demand.request.containers]
    apps = [theirs for kind, theirs in parts if kind is Kind.APP]
    for kind, theirs in parts:
        yield from _beyond(theirs, apps) if kind is Kind.INIT else theirs


def _beyond(init: Sequence[Part], apps: Sequence[Sequence[Part]]) -> Iterator[Part]:
    inside = max(map(len, apps), default=0)
    compute, memory = (min((part[axis] for theirs in apps for part in theirs), default=0) for axis in (0, 1))
    for at, part in enumerate(init):
        yield (max(0, part[0] - compute), max(0, part[1] - memory)) if at < inside else part
