"""Which nodes could take a pod, and how good each would be: asked of all nodes at once.

For pieces in falling order a node can take them if, for each, as many of its GPUs take it as pieces are at least that
large (`demand.py` says why), all of them in one isolation mode (`modes.py`). What several containers hold at the same
time is tried out on the nodes that have room for each of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress, groupby

import msgspec
import numpy as np

from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.appraisal import Appraisal, Placed, distinct
from aliquot_scheduler.fit.cost import DEGRADED, WORST, Reals, grade, instance_cost, leftover, wanted
from aliquot_scheduler.fit.demand import Demand, Piece, pieces_of
from aliquot_scheduler.fit.modes import apart_by_mode, in_one_mode
from aliquot_scheduler.fit.places import allowed_places, needed_memory, takes
from aliquot_scheduler.fit.together import Levels, alike, may_fit, surely_fits
from aliquot_scheduler.picture.grid import Bools, Cells, Rows
from aliquot_scheduler.picture.host_room import NOTHING_OWN, Own
from aliquot_scheduler.rules.judging import Judgement


class Short(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes whose GPUs have room for a pod, and of which kube-scheduler counts too little left.

    Why is worked out for those alone to whom it is told: it takes longer than all else that is asked of a node.
    """

    nodes: Collection[str] = ()
    asked: Own = NOTHING_OWN
    # The pod's UID: what it holds itself is not counted.
    but: str = ""


NOTHING_SHORT = Short()


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, by row of the grid; `cost` is meaningless where nothing `fits`."""

    fits: Bools
    cost: Reals
    # By node what rules of the cluster's own say against it.
    judgements: Mapping[str, Judgement] = {}
    short: Short = NOTHING_SHORT

    def grades(self, rows: Rows, *, best: int) -> list[int]:
        """Of the nodes in these rows, from 0 to one below the best, so that one can be lifted above its equals.

        A node that has come since may stand beyond those that were looked at.
        """
        fits = self.fits.take(rows, mode="clip") & (rows < self.fits.size)
        costs = np.where(fits, self.cost.take(rows, mode="clip"), WORST)
        grades: list[int] = np.minimum(grade(costs, best=best), best - 1).tolist()
        return grades


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that have room for a pod, with their rows."""

    nodes: Sequence[str]
    rows: Rows

    @classmethod
    def among(cls, nodes: Sequence[str], rows: Rows, found: Survey) -> Room:
        """Those of these nodes that have."""
        fits = found.fits[rows]
        if fits.all():
            return cls(nodes=nodes, rows=rows)
        return cls(nodes=list(compress(nodes, fits.tolist())), rows=rows[fits])


# Tries a pod on one row: the cost, or None if it does not fit.
Trial = Callable[[int], float | None]


def survey(demand: Demand, *, grid: Cells, trial: Trial, appraisal: Appraisal | None = None) -> Survey:
    """Ask all rows, each by itself; with an appraisal the cost is what a row loses, not held against others yet."""
    allowed, sets = allowed_places(demand.request, grid=grid), apart_by_mode(demand.request, grid=grid).values()
    parts = [(piece, count, takes(piece, grid=grid, allowed=allowed)) for piece, count in distinct(demand)]
    if demand.pieces is None:
        levels = appraisal.levels() if appraisal else None
        found = _by_trial(demand.request, grid=grid, allowed=allowed, sets=sets, trial=trial, levels=levels)
    else:
        parts = in_one_mode(parts, sets)
        fits = _room_for(parts, grid=grid) & grid.bindable
        if demand.request.uuids.allowed or demand.request.uuids.forbidden:
            # What matters of a node's GPUs is then more than numbers.
            found = _tried(fits, grid=grid, trial=trial)
        else:
            cost = np.zeros(grid.rows) if appraisal else _cost(demand, parts, grid=grid)
            found = Survey(fits=fits, cost=cost)
    return msgspec.structs.replace(found, cost=appraisal.of_nodes(parts)) if appraisal else found


def _room_for(parts: Sequence[Placed], *, grid: Cells) -> Bools:
    fits = np.ones(grid.rows, dtype=np.bool_)
    so_far = 0
    for _, count, places in parts:
        so_far += count
        fits &= places.sum(axis=1) >= so_far
    return fits


def _cost(demand: Demand, parts: Sequence[Placed], *, grid: Cells) -> Reals:
    """One piece: the best GPU's cost. Several: what is left idle of the node beside them."""
    (piece, count, places), *more = parts
    if count == 1 and not more:
        on_gpus = gpu_costs(piece, demand.request, grid=grid)
        best: Reals = np.where(places, on_gpus, np.inf).min(axis=1)
        return best
    idle = (grid.open & (grid.holders == 0)).sum(axis=1) - sum(count for _, count, _ in parts)
    cost = np.clip(idle / np.maximum(1, grid.open.shape[1]), 0.0, 1.0)
    costs: Reals = wanted(cost, demand.request.placement) + DEGRADED * grid.degraded.any(axis=1)
    return costs


def gpu_costs(piece: Piece, request: PodRequest, *, grid: Cells) -> Reals:
    """What the piece would cost on each GPU, whether or not it fits."""
    left = leftover(grid.compute - piece.compute, grid.memory - needed_memory(piece, grid=grid), grid.usable)
    of_cards = wanted(np.clip(left, 0.0, 1.0), request.placement)
    costs: Reals = np.where(grid.cut, instance_cost(grid.total, grid.usable), of_cards) + DEGRADED * grid.degraded
    return costs


def _by_trial(
    request: PodRequest,
    *,
    grid: Cells,
    allowed: Bools,
    sets: Collection[Bools],
    trial: Trial,
    levels: Levels | None,
) -> Survey:
    possible = grid.bindable & may_fit(request, grid=grid, allowed=allowed)
    for container in request.containers:
        parts = [
            (piece, len(list(same)), takes(piece, grid=grid, allowed=allowed))
            for piece, same in groupby(pieces_of(container))
        ]
        possible &= _room_for(in_one_mode(parts, sets), grid=grid)
    # What it costs is then worked out for all rows at once, so nothing is to be tried but whether it fits.
    sure = levels is not None and not sets
    surely = possible & surely_fits(request, grid=grid, allowed=allowed) if sure else np.zeros_like(possible)
    rows = np.flatnonzero(possible & ~surely)
    found = _tried(possible & ~surely, grid=grid, trial=trial, same=alike(request, rows, grid=grid, levels=levels))
    return Survey(fits=found.fits | surely, cost=found.cost)


def _tried(possible: Bools, *, grid: Cells, trial: Trial, same: Sequence[int] | None = None) -> Survey:
    """Try each; of those that are alike the first speaks for all."""
    fits = np.zeros(grid.rows, dtype=np.bool_)
    cost = np.zeros(grid.rows)
    rows = np.flatnonzero(possible).tolist()
    said: dict[int, float | None] = {}
    for row, number in zip(rows, rows if same is None else same, strict=True):
        if number not in said:
            said[number] = trial(row)
        if (tried := said[number]) is not None:
            fits[row], cost[row] = True, tried
    return Survey(fits=fits, cost=cost)
