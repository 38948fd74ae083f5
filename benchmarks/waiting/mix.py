"""In what time a mix of jobs that all come at once is done: the articles' "48 h → 34 h", on pods of the openb trace.

    python benchmarks/waiting/mix.py [--seeds 5] [--slowdown 0.0]
    python benchmarks/waiting/mix.py --sensitivity [--seeds 3]

1,000 of the pods of `default` that want GPUs and run for a day at most, drawn without replacement, on one node of 8
GPUs. What no policy can do without moving or stopping anybody: end before all GPU time that was asked for is given. So
beside whole GPUs no more can be gained than lies idle beside shares there; a mix that shares nothing gains nothing.

With `--sensitivity` a table tells what is gained by how many of the pods want a part of a GPU and how long each runs:
from which mix on sharing makes 34 h of 48, as is claimed (2 minutes).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.waiting.openb import GRACE, timetable

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.simulating.timed.contest import TimedPolicy, TimedRun
from aliquot_scheduler.simulating.timed.job import Job, Timetable, in_whole_gpus
from aliquot_scheduler.simulating.workload import MILLI, Need

PODS, LONGEST, HOUR, GPUS = 1_000, 86_400.0, 3600.0, 8
# Hours that are claimed to become 34; and the mixes that are tried: of 100 pods so many share, and run so long at most.
CLAIMED = 48.0
SHARING, LONGEST_OF = (25, 50, 65, 75, 90, 100), (2 * HOUR, 6 * HOUR, LONGEST)


def mix(seed: int, *, longest: float = LONGEST, sharing: int | None = None) -> Timetable:
    """All of them at once; of 100 so many share, or as many as in the trace."""
    whole = timetable(nodes=1, k=1.0, seed=None, gpus_only=True)
    short = [job for job in whole.jobs if job.runs <= longest]
    chance = random.Random(seed)
    if sharing is None:
        drawn = chance.sample(short, PODS)
    else:
        parts = [job for job in short if shares(whole, job)]
        count = PODS * sharing // 100
        # Once more where there are too few of them.
        drawn = chance.choices(parts, k=count)
        drawn += chance.choices([job for job in short if not shares(whole, job)], k=PODS - count)
        chance.shuffle(drawn)
    jobs = tuple(msgspec.structs.replace(job, number=number, at=0.0) for number, job in enumerate(drawn))
    return msgspec.structs.replace(whole, jobs=jobs)


def shares(asked: Timetable, job: Job) -> bool:
    """Whether it wants a part of a GPU."""
    return asked.needs[job.need].shared


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


def sensitivity(*, seeds: int, slowdown: float) -> None:
    """A table of how much sharing by itself gains of each mix, and what is the most that anybody could."""
    print(
        "| runs at most, h | sharing: of pods | of GPU time | whole GPUs, h | `fifo`, h | of 48 h | change | at best |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    for longest in LONGEST_OF:
        for sharing in (None, *SHARING):
            mixes = [mix(seed, longest=longest, sharing=sharing) for seed in range(seeds)]
            whole = _hours(mixes, TimedPolicy.WHOLE_GPU_FIFO, slowdown=slowdown)
            ours = _hours(mixes, TimedPolicy.FIFO, slowdown=slowdown)
            best = float(np.mean([least(one, whole=False) for one in mixes]))
            cells = [f"{longest / HOUR:g}", *(f"{100 * share:.0f} %" for share in _parts(mixes))]
            cells += [f"{whole:.1f}", f"{ours:.1f}", f"{CLAIMED * ours / whole:.1f}"]
            cells += [f"{100 * (hours / whole - 1):+.0f} %" for hours in (ours, best)]
            print(f"| {' | '.join(cells)} |{' as traced' if sharing is None else ''}", flush=True)


def _parts(mixes: Sequence[Timetable]) -> list[float]:
    """Which part of the pods share, and of the GPU time that they take on whole GPUs."""
    weighed = [
        (shares(asked, job), job.runs * in_whole_gpus(asked.needs[job.need]).gpus)
        for asked in mixes
        for job in asked.jobs
    ]
    share = sum(time for is_part, time in weighed if is_part)
    return [sum(is_part for is_part, _ in weighed) / len(weighed), share / sum(time for _, time in weighed)]


def _hours(mixes: Sequence[Timetable], policy: TimedPolicy, *, slowdown: float) -> float:
    return float(np.mean([done_in(one, policy, slowdown=slowdown, seed=seed) for seed, one in enumerate(mixes)]))


def main() -> None:
    """Run them all, and tell the means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--slowdown", type=float, default=0.0, help="for each other pod on the GPU")
    parser.add_argument("--sensitivity", action="store_true", help="by how many share, and how long they run")
    given = parser.parse_args()
    if given.sensitivity:
        sensitivity(seeds=given.seeds, slowdown=given.slowdown)
        return
    mixes = [mix(seed) for seed in range(given.seeds)]
    base = 0.0
    for policy in (TimedPolicy.WHOLE_GPU_FIFO, TimedPolicy.FIFO, TimedPolicy.ALIQUOT):
        hours = _hours(mixes, policy, slowdown=given.slowdown)
        base = base or hours
        print(f"{policy}: {hours:.1f} h ({100 * (hours / base - 1):+.0f} %)", flush=True)
    bounds = [float(np.mean([least(one, whole=whole) for one in mixes])) for whole in (True, False)]
    print(f"GPUs busy without a break: in whole GPUs {bounds[0]:.1f} h, in shares {bounds[1]:.1f} h")


if __name__ == "__main__":
    main()
