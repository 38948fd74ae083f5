"""What lies on which machine: the truth that every policy is held to, however it keeps its own books.

What must always hold: nothing left is below nothing, on no machine and no GPU, at any instant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from aliquot_core.errors import DefectError
from aliquot_scheduler.simulating.fleet import Fleet
from aliquot_scheduler.simulating.timed.job import Job
from aliquot_scheduler.simulating.workload import Machine, Need


class OverGrantError(DefectError):
    """A policy put more on a machine than it has."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A job begins, on these GPUs of this machine (its row)."""

    job: Job
    row: int
    gpus: tuple[int, ...]


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A job is to go before its work is done: at the latest when its grace is over, in seconds."""

    job: Job
    grace: float


class Ground:
    """The machines, and who lies where."""

    def __init__(self, *, machines: Sequence[Machine], needs: Sequence[Need]) -> None:
        """`needs` is what each kind of job takes of machines, which may be more than it asks."""
        self.fleet = Fleet(machines)
        self.needs = tuple(needs)
        self._on: dict[tuple[int, int], dict[int, Start]] = defaultdict(dict)

    def put(self, start: Start) -> None:
        """Place it, if it has room."""
        fleet, need = self.fleet, self.needs[start.job.need]
        fleet.put(need, row=start.row, gpus=start.gpus)
        left = [fleet.cores[start.row], fleet.memory[start.row]]
        left += [array[gpu, start.row] for gpu in start.gpus for array in (fleet.milli, fleet.card_left)]
        if min(left) < 0 or len(set(start.gpus)) != need.gpus:
            raise OverGrantError(f"job {start.job.number} was put where it has no room", where=f"machine {start.row}")
        for gpu in start.gpus:
            self._on[start.row, gpu][start.job.number] = start

    def lift(self, start: Start) -> None:
        """It lies there no more."""
        self.fleet.lift(self.needs[start.job.need], row=start.row, gpus=start.gpus)
        for gpu in start.gpus:
            del self._on[start.row, gpu][start.job.number]

    def mates(self, start: Start) -> int:
        """How many others lie on its GPUs."""
        return len({number for gpu in start.gpus for number in self._on[start.row, gpu]} - {start.job.number})

    def beside(self, start: Start) -> Iterable[Start]:
        """Who lies on these GPUs, each once."""
        found = {number: one for gpu in start.gpus for number, one in self._on[start.row, gpu].items()}
        return [found[number] for number in sorted(found)]

    def hosts_room(self, need: Need) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which machines have the cores and the main memory, whatever GPUs they have."""
        return (self.fleet.cores >= need.cores) & (self.fleet.memory >= need.memory)
