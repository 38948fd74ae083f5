"""In what time a mix of jobs that all come at once is done: the articles' "48 h → 34 h", on pods of the openb trace.

    python benchmarks/waiting/mix.py [--seeds 5] [--slowdown 0.0]

1,000 of the pods of `default` that want GPUs and run for a day at most, drawn without replacement, on one node of 8
GPUs. What no policy can do without moving or stopping anybody: end before all GPU time that was asked for is given. So
beside whole GPUs no more can be gained than lies idle beside shares there; a mix that shares nothing gains nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.waiting.openb import GRACE, timetable

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.job import Timetable, in_whole_gpus
from aliquot_scheduler.simulating.workload import MILLI, Need

PODS, LONGEST, HOUR, GPUS = 1_000, 86_400.0, 3600.0, 8


def mix(seed: int) -> Timetable:
    """All of them at once."""
    whole = timetable(nodes=1, k=1.0, seed=None, gpus_only=True)
    short = [job for job in whole.jobs if job.runs <= LONGEST]
    drawn = random.Random(seed).sample(short, PODS)  # noqa: S311 - repeats itself, guards nothing
    jobs = tuple(msgspec.structs.replace(job, number=number, at=0.0) for number, job in enumerate(drawn))
    return msgspec.structs.replace(whole, jobs=jobs)


def least(asked: Timetable, *, whole: bool) -> float:
    """Hours that all GPUs are busy with what is asked for."""
    needs: list[Need] = [in_whole_gpus(need) if whole else need for need in asked.needs]
    return sum(job.runs * needs[job.need].gpus * needs[job.need].milli for job in asked.jobs) / (MILLI * GPUS * HOUR)


def done_in(asked: Timetable, policy: TimedPolicy, *, slowdown: float, seed: int) -> float:
    """Hours until the last has ended."""
    specs = {team: QueueSpec(namespaces=("*",)) for team in asked.teams}
    settings = QueueSettings(hold=0.0)
    run = TimedRun(asked, policy=policy, specs=specs, settings=settings, slowdown=slowdown, grace=GRACE, seed=seed)
    for _ in run.steps():
        pass
    return run.report().makespan / HOUR


def main() -> None:
    """Run them all, and tell the means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slowdown", type=float, default=0.0, help="for each other pod on the GPU")
    given = parser.parse_args()
    mixes = [mix(seed) for seed in range(given.seeds)]
    base = 0.0
    for policy in (TimedPolicy.WHOLE_GPU_FIFO, TimedPolicy.FIFO, TimedPolicy.ALIQUOT):
        hours = [done_in(one, policy, slowdown=given.slowdown, seed=seed) for seed, one in enumerate(mixes)]
        base = base or float(np.mean(hours))
        print(f"{policy}: {np.mean(hours):.1f} h ({100 * (np.mean(hours) / base - 1):+.0f} %)", flush=True)
    bounds = [float(np.mean([least(one, whole=whole) for one in mixes])) for whole in (True, False)]
    print(f"GPUs busy without a break: in whole GPUs {bounds[0]:.1f} h, in shares {bounds[1]:.1f} h")


if __name__ == "__main__":
    main()
