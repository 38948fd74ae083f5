"""Aliquot's own policy on a replay: the very function by which the centre chooses."""

from __future__ import annotations

import numpy as np

from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.simulating.fleet import ALL, Bools, Fleet, Some
from aliquot_scheduler.simulating.policies import Rating
from aliquot_scheduler.simulating.workload import MILLI, Need
from aliquot_scheduler.worth.loss import Part, loss
from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.room import Room
from aliquot_scheduler.worth.scarcity import scarcity
from aliquot_scheduler.worth.tables import tables

# After so many arrivals prices are renewed; every 50: same result, every 1,000: 0.06 points less.
RENEWED = 200
_STEP = MILLI // WHOLE.value


def shape_of(need: Need, *, card: int = 0) -> Shape:
    """The need in the centre's units; parts of a percent count as a whole one."""
    percent = -(-need.milli // _STEP)
    memory = -(-need.card * WHOLE.value // card) if need.card and card else percent
    models = Patterns(allowed=tuple(sorted({model.casefold() for model in need.models})))
    return Shape(cores=need.cores / MILLI, compute=percent, memory=memory, gpus=need.gpus, models=models)


class Valued:
    """Least loss of value."""

    def __init__(self, fleet: Fleet, *, mix: Mix) -> None:
        self._fleet = fleet
        self._tables = tables(
            mix,
            kinds=[(model,) for model in fleet.models],
            gpus=int(fleet.gpus.max(initial=1)),
            cores=float(fleet.cores.max(initial=0)) / MILLI,
        )
        self._arrived = 0
        self._kinds = np.broadcast_to(fleet.model, fleet.milli.shape).copy()
        self._scarcity = scarcity(self._room(ALL), self._tables)

    @property
    def version(self) -> int:
        """Prices are renewed now and then."""
        return self._arrived // RENEWED

    def arrived(self, need: Need) -> None:  # noqa: ARG002 - the mix is given
        """Count it."""
        self._arrived += 1
        if self._arrived % RENEWED == 0:
            self._scarcity = scarcity(self._room(ALL), self._tables)

    def rate(self, need: Need, some: Some) -> Rating:
        """By what is lost."""
        fleet = self._fleet
        takes = fleet.takes(need, some)
        able = fleet.able(need, some, takes)
        asked = shape_of(need)
        parts = [self._part(need, some, compute=asked.compute, takes=takes)] if need.gpus else []
        found = loss(self._room(some), cores=asked.cores, parts=parts, tables=self._tables, scarcity=self._scarcity)
        return Rating(cost=np.where(able, found.nodes, np.inf), gpu=found.gpu)

    def _room(self, some: Some) -> Room:
        fleet = self._fleet
        return Room(
            cores=fleet.cores[some] / MILLI,
            compute=fleet.milli[:, some] // _STEP,
            memory=fleet.card_left[:, some] * WHOLE.value // np.maximum(1, fleet.card[:, some]),
            kinds=self._kinds[:, some],
        )

    def _part(self, need: Need, some: Some, *, compute: int, takes: Bools) -> Part:
        memory = self._fleet.card_need(need, some) * WHOLE.value
        percent = -(-memory // np.maximum(1, self._fleet.card[:, some]))
        return Part(compute=compute, memory=percent, fits=takes, count=need.gpus)
