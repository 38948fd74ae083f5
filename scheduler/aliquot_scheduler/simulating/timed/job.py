"""What is simulated in time: machines, what pods ask for, and when which of them comes and for how long it runs."""

from __future__ import annotations

import msgspec

from aliquot_scheduler.simulating.workload import MILLI, Machine, Need


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One pod; times in seconds."""

    # Its place among all, by arrival: who came first of two is the one with the smaller number.
    number: int
    at: float
    # For so long if nobody slows it down.
    runs: float
    # Which of the needs.
    need: int
    team: str
    user: str


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by arrival."""

    machines: tuple[Machine, ...]
    needs: tuple[Need, ...]
    jobs: tuple[Job, ...]
    # Pods of the list that have no run time, or that no machine could take.
    left_out: int = 0

    @property
    def capacity(self) -> int:
        """Milli of all GPUs."""
        return MILLI * sum(machine.gpus for machine in self.machines)

    @property
    def teams(self) -> tuple[str, ...]:
        """Who has jobs."""
        return tuple(sorted({job.team for job in self.jobs}))


def in_whole_gpus(need: Need) -> Need:
    """What the plain device plugin gives for it: a share takes a GPU for itself, with as much memory as it asks."""
    return msgspec.structs.replace(need, milli=MILLI) if need.shared else need
