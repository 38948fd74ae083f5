"""Which kinds of jobs have room on which machines, kept up to date machine by machine.

A full cluster answers a line of thousands from one table: only who has room somewhere is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aliquot_scheduler.simulating.fleet import Bools, Fleet
from aliquot_scheduler.simulating.workload import Need


class Openings:
    """A table of needs by machines."""

    def __init__(self, *, fleet: Fleet, needs: Sequence[Need]) -> None:
        self._fleet = fleet
        self._cores = np.array([need.cores for need in needs], dtype=np.int64)
        self._memory = np.array([need.memory for need in needs], dtype=np.int64)
        self._gpus = np.array([need.gpus for need in needs], dtype=np.int64)
        self._milli = np.array([need.milli for need in needs], dtype=np.int64)
        # What belongs to the hardware alone: allowed models, and MiB of each card.
        self._allowed = np.array([_allowed(need, fleet) for need in needs]).reshape(len(needs), fleet.size)
        self._card = np.stack([fleet.card_need(need, slice(None)) for need in needs], axis=0)
        self.able: Bools = np.zeros((len(needs), fleet.size), dtype=np.bool_)
        for row in range(fleet.size):
            self.changed(row)

    def changed(self, row: int) -> None:
        """A machine has more left, or less."""
        fleet = self._fleet
        roomy = fleet.there[:, row] & (fleet.milli[:, row] >= self._milli[:, np.newaxis])
        roomy &= fleet.card_left[:, row] >= self._card[:, :, row]
        self.able[:, row] = (
            self._allowed[:, row]
            & (fleet.cores[row] >= self._cores)
            & (fleet.memory[row] >= self._memory)
            & (roomy.sum(axis=1) >= self._gpus)
        )


def _allowed(need: Need, fleet: Fleet) -> Bools:
    free = not need.gpus or not need.models
    return np.array([free or model in need.models for model in fleet.models])[fleet.model]
