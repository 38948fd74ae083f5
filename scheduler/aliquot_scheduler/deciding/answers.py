"""What kube-scheduler is told of the nodes that it asked about: which have room, and why the others have not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import msgspec

from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.fit.bounds import Bounds
from aliquot_scheduler.fit.demand import Demand
from aliquot_scheduler.fit.finder import Finder
from aliquot_scheduler.fit.finding import NodeCause
from aliquot_scheduler.fit.refusals import Refusal
from aliquot_scheduler.fit.survey import Room, Survey
from aliquot_scheduler.picture.grid import Rows

# Of nodes that are not the pod's to have, whatever room they have.
_OUTSIDE = Refusal(
    cause=NodeCause.OUTSIDE, why="the pod's group lies elsewhere, or the node is kept for one that has waited long"
)
_UNKNOWN = Refusal(cause=NodeCause.UNKNOWN, why="Aliquot knows no such node")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that were named for a pod, what it demands, and where alone it may lie."""

    demand: Demand
    bounds: Bounds
    nodes: Sequence[str]


def told(asked: Asked, *, known: Sequence[str], rows: Rows, found: Survey, room: Room, finder: Finder) -> Filtered:
    """The answer; of the nodes within its bounds those with these rows are `known`, and there is `room` on some."""
    unfit = len(room.nodes) < len(known)
    refusals = _refusals(asked.demand, known, rows, found, finder=finder) if unfit else {}
    outside = [] if asked.bounds.everywhere else [node for node in asked.nodes if not asked.bounds.admits(node)]
    strangers = set(asked.nodes).difference(known, outside) if len(known) + len(outside) < len(asked.nodes) else ()
    refusals |= dict.fromkeys(strangers, _UNKNOWN) | dict.fromkeys(outside, _OUTSIDE)
    return Filtered(
        nodes=room.nodes,
        failed={name: one.why for name, one in refusals.items() if not one.final},
        unresolvable={name: one.why for name, one in refusals.items() if one.final},
    )


def _refusals(demand: Demand, known: Sequence[str], rows: Rows, found: Survey, *, finder: Finder) -> dict[str, Refusal]:
    unfit = (~found.fits[rows]).tolist()
    nodes = dict(compress(zip(known, rows.tolist(), strict=True), unfit))
    return finder.refusals(demand, nodes, judgements=found.judgements, short=found.short)
