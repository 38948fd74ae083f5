"""Surveys that were made before, brought up to date: only nodes that have changed since are asked anew.

Theory of operation. What a survey says of a node follows from that node's row, from what the pod asks, and from prices
that are the same for all nodes. Between two pods that ask alike, one or two nodes of 1,000 have changed: to ask those
takes 0.2 ms, to ask all five times as long. The answers are kept by what is asked, those that were used last. And as
the nodes of a cluster are much alike and are filled alike, most of them come to states that another one was in before:
what was said of those is kept too, and is read in 0.02 ms.

What must always hold: an answer is the one that asking all rows would give; what was handed out never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.appraisal import Appraisal, beyond_best
from aliquot_scheduler.fit.cost import Reals
from aliquot_scheduler.fit.demand import Demand, of_anybody
from aliquot_scheduler.fit.survey import Survey, Trial, survey
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.picture.grid import Bools, Grid, Rows
from aliquot_scheduler.worth.scarcity import Scarcity

# 9 kB each at 1,000 nodes.
_KEPT = 64
# Where more than one row in so many has changed, all are asked.
_FEW = 4
# So few that to tell their states takes no longer than to ask them together.
_ONE_BY_ONE = 16
# States of a row, 0.4 kB each with 8 GPUs.
_STATES = 256

_Asked = tuple[PodRequest, float]


@dataclass(kw_only=True, eq=False)
class _Basis:
    """What all rows were judged by."""

    scarcity: Scarcity | None
    cores: RowChanges | None
    # Rows, columns and kinds of GPUs.
    shape: tuple[int, ...]

    def holds(self, now: _Basis) -> bool:
        """Whether it is the same still: prices are made anew whenever their tables are, and never changed."""
        return self.scarcity is now.scarcity and self.cores is now.cores and self.shape == now.shape


@dataclass(kw_only=True, eq=False)
class _Kept:
    """What was found by row, as of so many changes of the grid and of its cores."""

    fits: Bools
    cost: Reals
    basis: _Basis
    grid_then: int = 0
    cores_then: int = 0
    # Fit and cost of a row in that state; nothing where it matters which row it is.
    said: dict[bytes, tuple[bool, float]] = field(default_factory=dict)


class Surveys:
    """Answers for one grid."""

    def __init__(self, *, grid: Grid) -> None:
        self._grid = grid
        self._kept: dict[_Asked, _Kept] = {}

    def of(self, demand: Demand, *, trial: Trial, appraisal: Appraisal | None, within: Bools | None = None) -> Survey:
        """Which rows could take a pod that asks so, and what it would cost there; `within` are those that will do."""
        kept = self._up_to_date(demand, trial=trial, appraisal=appraisal)
        fits = kept.fits.copy() if within is None else kept.fits & within
        return Survey(fits=fits, cost=beyond_best(kept.cost, fits=fits) if appraisal else kept.cost.copy())

    def _up_to_date(self, demand: Demand, *, trial: Trial, appraisal: Appraisal | None) -> _Kept:
        asked = _asked(demand, appraisal)
        kept, basis = self._kept.pop(asked, None), self._basis(appraisal)
        changed = self._changed(kept, appraisal) if kept and kept.basis.holds(basis) else None
        if kept is None or changed is None or changed.size * _FEW > self._grid.rows:
            size = self._grid.rows
            kept = _Kept(fits=np.zeros(size, dtype=np.bool_), cost=np.zeros(size), basis=basis)
            self._ask(self._grid.in_use, kept, demand, trial=trial, appraisal=appraisal)
        elif 0 < changed.size <= _ONE_BY_ONE and _is_of_numbers(demand):
            self._ask_once(changed, kept, demand, trial=trial, appraisal=appraisal)
        elif changed.size:
            self._ask(changed, kept, demand, trial=trial, appraisal=appraisal)
        kept.grid_then = self._grid.changes.now
        kept.cores_then = appraisal.changes.now if appraisal else 0
        self._keep(asked, kept)
        return kept

    def _ask(
        self, rows: Rows | slice, kept: _Kept, demand: Demand, *, trial: Trial, appraisal: Appraisal | None
    ) -> None:
        found = survey(
            demand,
            grid=self._grid.part(rows),
            # A slice begins with the first row.
            trial=lambda number: trial(number if isinstance(rows, slice) else int(rows[number])),
            appraisal=appraisal.among(rows) if appraisal else None,
        )
        kept.fits[rows], kept.cost[rows] = found.fits, found.cost

    def _ask_once(self, rows: Rows, kept: _Kept, demand: Demand, *, trial: Trial, appraisal: Appraisal | None) -> None:
        """Ask those of these rows that are in a state in which none was asked before."""
        new: dict[int, bytes] = {}
        for row in rows.tolist():
            state = self._grid.state_of(row) + (appraisal.cores_of(row) if appraisal else b"")
            if (said := kept.said.get(state)) is None:
                new[row] = state
            else:
                kept.fits[row], kept.cost[row] = said
        if new:
            self._ask(np.array(list(new)), kept, demand, trial=trial, appraisal=appraisal)
            if len(kept.said) + len(new) > _STATES:
                kept.said.clear()
            kept.said.update({state: (bool(kept.fits[row]), float(kept.cost[row])) for row, state in new.items()})

    def _changed(self, kept: _Kept, appraisal: Appraisal | None) -> Rows:
        changed = self._grid.changes.since(kept.grid_then)
        if appraisal:
            changed = changed | appraisal.changes.since(kept.cores_then)
        return np.flatnonzero(changed)

    def _basis(self, appraisal: Appraisal | None) -> _Basis:
        return _Basis(
            scarcity=appraisal.scarcity if appraisal else None,
            cores=appraisal.changes if appraisal else None,
            shape=(*self._grid.open.shape, len(self._grid.kinds)),
        )

    def _keep(self, asked: _Asked, kept: _Kept) -> None:
        """Those that were used last come last."""
        self._kept[asked] = kept
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]


def _is_of_numbers(demand: Demand) -> bool:
    """Whether all that matters of a row is in the grid: neither which GPUs these are, nor how they reach each other."""
    request = demand.request
    return demand.pieces is not None and not (request.uuids.allowed or request.uuids.forbidden)


def _asked(demand: Demand, appraisal: Appraisal | None) -> _Asked:
    return of_anybody(demand.request), appraisal.cores if appraisal else 0.0
