"""Aliquot's own policy on a replay: the very function by which the centre chooses."""

from __future__ import annotations

from collections import Counter

import numpy as np

from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE
from aliquot_scheduler.simulating.fleet import ALL, Bools, Fleet, Some
from aliquot_scheduler.simulating.policies import Rating
from aliquot_scheduler.simulating.workload import MILLI, Need, Workload
from aliquot_scheduler.worth.learning import MixBook, expected_mix, next_look
from aliquot_scheduler.worth.loss import Part, loss
from aliquot_scheduler.worth.mix import Mix, Shape
from aliquot_scheduler.worth.room import Room
from aliquot_scheduler.worth.scarcity import scarcity
from aliquot_scheduler.worth.tables import tables

# After so many arrivals prices are renewed; every 50: same result, every 1,000: 0.06 points less.
RENEWED = 200
_STEP = MILLI // WHOLE.value


def shape_of(need: Need, *, card: int) -> Shape:
    """The need in the centre's units, on cards of so many MiB; begun percents count as whole ones."""
    percent = -(-need.milli // _STEP)
    memory = min(WHOLE.value, -(-need.card * WHOLE.value // max(1, card))) if need.card else percent
    models = Patterns(allowed=tuple(sorted({model.casefold() for model in need.models})))
    return Shape(cores=need.cores / MILLI, compute=percent, memory=memory, gpus=need.gpus, models=models)


def usual_card(fleet: Fleet) -> int:
    """MiB of the card in the middle: what a need in MiB is a part of, where no card is meant."""
    cards = fleet.card[fleet.there]
    return int(np.median(cards)) if cards.size else MILLI


def mix_of(workload: Workload, fleet: Fleet) -> Mix:
    """The mix of the whole list: what the published policy knows beforehand, too."""
    counts: Counter[Shape] = Counter()
    card = usual_card(fleet)
    for need, count in zip(workload.needs, np.bincount(workload.pods, minlength=len(workload.needs)), strict=True):
        counts[shape_of(need, card=card)] += int(count)
    return Mix.of(counts)


class Valued:
    """Least loss of value, with the mix given or learnt as pods arrive."""

    def __init__(self, fleet: Fleet, *, mix: Mix | None) -> None:
        self._fleet = fleet
        self._book = MixBook() if mix is None else None
        self._arrived = 0
        self._next = next_look(0)
        self.version = 0
        self._card = usual_card(fleet)
        self._kinds = np.broadcast_to(fleet.model, fleet.milli.shape).copy()
        self._expected = expected_mix(cores_per_gpu=float(fleet.cores.sum()) / MILLI / max(1, int(fleet.gpus.sum())))
        self._learn(mix or self._expected)

    def arrived(self, need: Need) -> None:
        """Count it, and look anew at what is wanted and what is scarce when it is time to."""
        self._arrived += 1
        if self._book is not None:
            self._book.count(shape_of(need, card=self._card))
            if self._arrived >= self._next:
                self._next = next_look(self._arrived)
                self._learn(self._book.mix(expected=self._expected))
                return
        if self._arrived % RENEWED == 0:
            self._look()

    def _learn(self, mix: Mix) -> None:
        fleet = self._fleet
        self._tables = tables(
            mix,
            kinds=[(model,) for model in fleet.models],
            gpus=int(fleet.gpus.max(initial=1)),
            cores=float(fleet.cores.max(initial=0)) / MILLI,
        )
        self._look()

    def _look(self) -> None:
        self._scarcity = scarcity(self._room(ALL), self._tables)
        self.version += 1

    def rate(self, need: Need, some: Some) -> Rating:
        """By what is lost."""
        fleet = self._fleet
        takes = fleet.takes(need, some)
        able = fleet.able(need, some, takes)
        asked = shape_of(need, card=self._card)
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
        if not need.card or compute == WHOLE.value:
            return Part(compute=compute, memory=compute, fits=takes, count=need.gpus)
        card = np.maximum(1, self._fleet.card[:, some])
        return Part(compute=compute, memory=-(-need.card * WHOLE.value // card), fits=takes, count=need.gpus)
