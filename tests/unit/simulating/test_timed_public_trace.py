"""What is claimed of the public trace, on a part of it that is played in seconds."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import Quota
from aliquot_scheduler.simulating.timed.altering import bootstrapped, compressed, given_to_teams
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.job import Timetable
from aliquot_scheduler.simulating.timed.reading import read_timetable
from aliquot_scheduler.simulating.workload import Machine
from support.timetables import OPEN, Log
from support.traces import OPENB

# Two nodes of 8 GPUs, and eight teams of which each may hold a half of them.
NODES, TEAMS, PODS = 2, 8, 1_200
LIMIT = 400 * NODES
NO_HOLD = QueueSettings(hold=0.0)


def slice_of_openb(seed: int) -> Timetable:
    """As the benchmark has it, with fewer pods."""
    machines = [Machine(name=f"n{row}", cores=96_000, memory=393_216, gpus=8, model="G2") for row in range(NODES)]
    name = "openb_pod_list_default.csv"
    with (OPENB / name).open(newline="") as lines:
        found = read_timetable(lines, name=name, machines=machines, after=9_964_972, gpus_only=True)
    found = compressed(bootstrapped(given_to_teams(found, teams=TEAMS, users=12, seed=0), seed=seed), factor=0.6)
    return msgspec.structs.replace(found, jobs=found.jobs[:PODS])


def played(asked: Timetable, policy: TimedPolicy) -> tuple[TimedRun, Log]:
    """A run to its end, and who lay where."""
    specs = dict.fromkeys(asked.teams, msgspec.structs.replace(OPEN, compute=Quota(limit=LIMIT)))
    run = TimedRun(asked, policy=policy, specs=specs, settings=NO_HOLD)
    log = run._clockwork._watcher = Log(run.meter)
    for _ in run.steps():
        pass
    return run, log


def most_held(asked: Timetable, log: Log) -> int:
    """Percent of compute that any team held at once, counted anew from who started and ended when."""
    changes = [(at, 1, one.job) for at, one in log.starts] + [(at, -1, job) for at, job in log.ends]
    held: dict[str, int] = defaultdict(int)
    most = 0
    # At an instant ends come before starts.
    for _, sign, job in sorted(changes, key=lambda change: change[:2]):
        held[job.team] += sign * asked.needs[job.need].total // 10
        most = max(most, held[job.team])
    return most


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_quota_is_broken_and_teams_get_alike_of_what_they_ask(seed: int) -> None:
    """Which first come, first served breaks; waits are shorter, and all of them have run."""
    asked = slice_of_openb(seed)
    ours, log = played(asked, TimedPolicy.ALIQUOT)
    theirs, their_log = played(asked, TimedPolicy.WHOLE_GPU_FIFO)
    told, base = ours.report(), theirs.report()
    assert (told.ended, base.ended) == (PODS, PODS)
    assert most_held(asked, log) <= LIMIT < most_held(asked, their_log)
    assert told.quota_violations == 0 < base.quota_violations
    assert told.full_backlog.hours > 24
    assert (told.jain_served or 0.0) > max(0.75, (base.jain_served or 0.0) + 0.1)
    assert told.wait.mean < 0.65 * base.wait.mean
