"""Another timetable of the same pods: compressed in time, drawn anew, given to teams."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec
import numpy as np

from aliquot_scheduler.simulating.timed.job import Job, Timetable

# Equal pods of which each comes so soon after the one before belong to one batch; from so many on it is bulk.
_SOON = 600.0
_BULK = 10
# One team in so many, at least one, submits what is bulk, and nothing else.
_BULK_TEAMS = 4


def compressed(timetable: Timetable, *, factor: float) -> Timetable:
    """Arrival times multiplied; run times are what they are."""
    jobs = tuple(msgspec.structs.replace(job, at=job.at * factor) for job in timetable.jobs)
    return msgspec.structs.replace(timetable, jobs=jobs)


def bootstrapped(timetable: Timetable, *, seed: int) -> Timetable:
    """As many pods, drawn from all with replacement; each comes when it came, runs as it ran, and is whose it was."""
    drawn = np.random.default_rng(seed).integers(len(timetable.jobs), size=len(timetable.jobs))
    return msgspec.structs.replace(timetable, jobs=_numbered([timetable.jobs[one] for one in sorted(drawn.tolist())]))


def given_to_teams(timetable: Timetable, *, teams: int, users: int, seed: int) -> Timetable:
    """By a hash of each pod's place in the list, to so many users of each team; equal pods in bulk are one user's.

    So pods of the same kind have different owners, except in bulk. To be done before pods are drawn anew.
    """
    bulk_teams = max(1, teams // _BULK_TEAMS) if teams > 1 else 0
    batches = _batches(timetable.jobs)
    sizes = np.bincount(batches)
    jobs = []
    for job, batch in zip(timetable.jobs, batches, strict=True):
        is_bulk = bulk_teams and sizes[batch] >= _BULK
        hashed = crc32(f"{seed}/{'batch' if is_bulk else 'pod'}/{batch if is_bulk else job.number}".encode())
        team = hashed % bulk_teams if is_bulk else bulk_teams + hashed % (teams - bulk_teams)
        name = f"team-{team:02}" + ("-bulk" if team < bulk_teams else "")
        user = f"{name}-{hashed // teams % users:02}"
        jobs.append(msgspec.structs.replace(job, team=name, user=user))
    return msgspec.structs.replace(timetable, jobs=tuple(jobs))


def _batches(jobs: Sequence[Job]) -> list[int]:
    """The number of each one's batch: that of its first pod."""
    last: dict[int, tuple[int, float]] = {}
    found = []
    for job in jobs:
        batch, at = last.get(job.need, (job.number, job.at))
        batch = batch if job.at - at <= _SOON else job.number
        last[job.need] = batch, job.at
        found.append(batch)
    return found


def _numbered(jobs: Sequence[Job]) -> tuple[Job, ...]:
    return tuple(msgspec.structs.replace(job, number=number) for number, job in enumerate(jobs))
