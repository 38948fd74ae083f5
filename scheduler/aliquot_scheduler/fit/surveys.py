"""Surveys that were made before, brought up to date: only nodes that have changed since are asked anew.

Theory of operation. What a survey says of a node follows from that node's row, from what the pod asks, and from prices
that are the same for all nodes. Between two pods that ask alike, few nodes of 1,000 have changed, one or two for each
pod that came between them: only those are asked, and few in plain numbers (`one_row`), which the pods share that come
in turn (`plain_rows`). The answers are kept by what is asked, those that were used last.

What must always hold: an answer is the one that asking all rows would give; what was handed out never changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aliquot_core.request import PodRequest
from aliquot_scheduler.fit.appraisal import Appraisal, beyond_best, distinct
from aliquot_scheduler.fit.cost import Reals
from aliquot_scheduler.fit.demand import Demand, of_anybody
from aliquot_scheduler.fit.modes import kinds_together
from aliquot_scheduler.fit.one_row import ask_row
from aliquot_scheduler.fit.plain_rows import PlainRows
from aliquot_scheduler.fit.survey import Survey, Trial, survey
from aliquot_scheduler.picture.changes import RowChanges
from aliquot_scheduler.picture.grid import Bools, Grid, Rows
from aliquot_scheduler.worth.scarcity import Scarcity

# 9 kB each at 1,000 nodes.
_KEPT = 64
# Where more than one row in so many has changed, all are asked.
_FEW = 4
# So few that to ask them one by one takes no longer than to ask them together.
_ONE_BY_ONE = 12

_Asked = tuple[PodRequest, float]


@dataclass(kw_only=True, eq=False)
class _Basis:
    """What all rows were judged by."""

    scarcity: Scarcity | None
    cores: RowChanges | None
    # Rows, columns, and which kinds of GPUs there are.
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
    # By kind of GPU, whether the pod may have it: for each mode in which one container may have several.
    suitable: list[list[bool]]
    grid_then: int = 0
    cores_then: int = 0


class Surveys:
    """Answers for one grid."""

    def __init__(self, *, grid: Grid) -> None:
        self._grid = grid
        self._rows = PlainRows(grid=grid)
        self._kept: dict[_Asked, _Kept] = {}

    def of(self, demand: Demand, *, trial: Trial, appraisal: Appraisal | None, within: Bools | None = None) -> Survey:
        """Which rows could take a pod that asks so, and what it would cost there; `within` are those that will do."""
        kept = self._up_to_date(demand, trial=trial, appraisal=appraisal)
        fits = kept.fits.copy() if within is None else kept.fits & within
        return Survey(fits=fits, cost=beyond_best(kept.cost, fits=fits) if appraisal else kept.cost.copy())

    def of_one(self, row: int, demand: Demand, *, trial: Trial, appraisal: Appraisal | None, within: Bools) -> Survey:
        """The same of that row alone: no other is asked, none fits, and nothing is kept."""
        only = self._unasked(demand, self._basis(appraisal))
        self._ask(np.array([row], dtype=np.intp), only, demand, trial=trial, appraisal=appraisal)
        fits = only.fits & within
        return Survey(fits=fits, cost=beyond_best(only.cost, fits=fits) if appraisal else only.cost)

    def _up_to_date(self, demand: Demand, *, trial: Trial, appraisal: Appraisal | None) -> _Kept:
        asked = _asked(demand, appraisal)
        kept, basis = self._kept.pop(asked, None), self._basis(appraisal)
        changed = self._changed(kept, appraisal) if kept and kept.basis.holds(basis) else None
        if kept is None or changed is None or changed.size * _FEW > self._grid.rows:
            kept = self._unasked(demand, basis)
            self._ask(self._grid.in_use, kept, demand, trial=trial, appraisal=appraisal)
        elif changed.size <= _ONE_BY_ONE and appraisal and _is_of_numbers(demand) and not self._may_be_cut(kept):
            self._ask_each(changed, kept, demand, appraisal=appraisal)
        elif changed.size:
            self._ask(changed, kept, demand, trial=trial, appraisal=appraisal)
        kept.grid_then = self._grid.changes.now
        kept.cores_then = appraisal.changes.now if appraisal else 0
        self._keep(asked, kept)
        return kept

    def _unasked(self, demand: Demand, basis: _Basis) -> _Kept:
        size = self._grid.rows
        suitable = list(kinds_together(self._grid.kinds, demand.request).values())
        return _Kept(fits=np.zeros(size, dtype=np.bool_), cost=np.zeros(size), basis=basis, suitable=suitable)

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

    def _ask_each(self, rows: Rows, kept: _Kept, demand: Demand, *, appraisal: Appraisal) -> None:
        """Ask few rows, one by one."""
        asked = distinct(demand)
        for row in rows.tolist():
            kept.fits[row], kept.cost[row] = ask_row(
                row, asked, rows=self._rows, suitable=kept.suitable, appraisal=appraisal
            )

    def _may_be_cut(self, kept: _Kept) -> bool:
        """Whether the pod may come to an instance of MIG, whose price only `survey` knows."""
        return any(may and kind.cut for own in kept.suitable for may, kind in zip(own, self._grid.kinds, strict=True))

    def _changed(self, kept: _Kept, appraisal: Appraisal | None) -> Rows:
        changed = self._grid.changes.since(kept.grid_then)
        if appraisal:
            changed = changed | appraisal.changes.since(kept.cores_then)
        return np.flatnonzero(changed)

    def _basis(self, appraisal: Appraisal | None) -> _Basis:
        return _Basis(
            scarcity=appraisal.scarcity if appraisal else None,
            cores=appraisal.changes if appraisal else None,
            shape=(*self._grid.open.shape, self._grid.kinds_version),
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
