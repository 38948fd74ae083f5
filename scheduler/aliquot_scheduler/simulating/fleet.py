"""The machines of a replay as arrays, and what is left of each; GPU-major, as `worth.room` says why.

What must always hold: nothing left is below nothing; a place without a GPU has nothing left and takes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aliquot_scheduler.simulating.workload import MILLI, Longs, Machine, Need

Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
# Machines by their numbers, or all of them without a copy.
Some = Rows | slice

ALL = slice(None)


class Fleet:
    """What is left."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self.models = sorted({machine.model for machine in machines})
        self.model: Rows = np.array([self.models.index(machine.model) for machine in machines], dtype=np.intp)
        self.cores: Longs = np.array([machine.cores for machine in machines], dtype=np.int64)
        self.memory: Longs = np.array([machine.memory for machine in machines], dtype=np.int64)
        self.gpus: Longs = np.array([machine.gpus for machine in machines], dtype=np.int64)
        self.there: Bools = np.arange(max(1, self.gpus.max(initial=0)))[:, np.newaxis] < self.gpus
        self.milli: Longs = np.where(self.there, MILLI, 0)
        # MiB of each card; where a trace says nothing of memory, as many as it has milli: no pod then asks for any.
        cards = np.array([machine.card or MILLI for machine in machines], dtype=np.int64)
        self.card: Longs = np.where(self.there, cards, 0)
        self.card_left: Longs = self.card.copy()

    @property
    def size(self) -> int:
        """How many machines."""
        return len(self.cores)

    def card_need(self, need: Need, some: Some) -> Longs:
        """MiB that it takes of each card: what it says, or compute's share; a whole GPU is closed to all others."""
        card = self.card[:, some]
        if need.milli == MILLI:
            return np.maximum(card, need.card)
        # As the agent and the centre count: of a share that is no whole MiB they give less.
        return np.full_like(card, need.card) if need.card else card * need.milli // MILLI

    def takes(self, need: Need, some: Some) -> Bools:
        """Which GPUs of these machines have room for one part of it, whatever else the machine lacks."""
        room = self.there[:, some] & (self.milli[:, some] >= need.milli)
        return room & (self.card_left[:, some] >= self.card_need(need, some))

    def able(self, need: Need, some: Some, takes: Bools) -> Bools:
        """Which of these machines can take it."""
        able = (self.cores[some] >= need.cores) & (self.memory[some] >= need.memory)
        if need.gpus:
            able &= takes.sum(axis=0) >= need.gpus
            if need.models:
                able &= np.array([model in need.models for model in self.models])[self.model[some]]
        return able

    def put(self, need: Need, *, row: int, gpus: Sequence[int]) -> None:
        """Place it."""
        self._change(need, row=row, gpus=gpus, sign=-1)

    def lift(self, need: Need, *, row: int, gpus: Sequence[int]) -> None:
        """Take it away again."""
        self._change(need, row=row, gpus=gpus, sign=+1)

    def _change(self, need: Need, *, row: int, gpus: Sequence[int], sign: int) -> None:
        self.cores[row] += sign * need.cores
        self.memory[row] += sign * need.memory
        cards = self.card_need(need, np.array([row]))[:, 0]
        for gpu in gpus:
            self.milli[gpu, row] += sign * need.milli
            self.card_left[gpu, row] += sign * cards[gpu]
