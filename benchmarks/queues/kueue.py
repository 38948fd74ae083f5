"""Kueue's baseline and large-scale generators before our queues: makespan, use, waits, decisions per second.

    .venv/bin/python benchmarks/queues/kueue.py [--cohorts 5] [--members 6] [--scale baseline|large]
    .venv/bin/python benchmarks/queues/kueue.py --scale large --cohorts 10 --members 100     # its full size, 5 minutes

A CPU of theirs is a GPU of ours (20 = 2,000 %); a workload of n CPUs is a gang of n pods with a GPU each, so that
nothing is lost to cards that are cut in another way: their quota knows no nodes either. Without preemption.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from aliquot_scheduler.reclaim.reclaim import Reclaim
from support.bench_figures import Asked
from support.centre import WALL
from support.kueue_workloads import COUNTS, KUEUE, NOMINAL, generate
from support.queue_replay import Replay, mean


class Reclaiming(Replay):
    """Borrowers go for owners."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._reclaim = Reclaim(queues=self.queues, picture=self.picture)
        self.sent_away = 0

    def decide(self) -> None:
        """Rounds of turns, and who goes for others, until neither does anything."""
        super().decide()
        while names := self._victims():
            for name in sorted(names):
                job, _ = self.running[name]
                self.end(name)
                job.ended = job.admitted = None
                self.submit(job)
            self.sent_away += len(names)
            super().decide()

    def _victims(self) -> set[str]:
        began = time.process_time()
        clearings = self._reclaim.decide(now=self.now, wall=WALL + self.now)
        self.spent.append(time.process_time() - began)
        return {victim.uid.rpartition("-")[0] for clearing in clearings for victim in clearing.victims}

    def end_due(self) -> None:
        """Whose time is over, counted from when it was let in last."""
        whole = [job for job, _ in self.running.values() if job.admitted is not None]
        for job in whole:
            if job.admitted is not None and job.admitted + job.runs <= self.now:
                self.end(job.name)
        while self._ends and self._ends[0][0] <= self.now:
            heapq.heappop(self._ends)


def main() -> None:
    """Run it and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cohorts", type=int, default=5)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--scale", choices=sorted(COUNTS), default="baseline")
    parser.add_argument("--step", type=float, default=0.01)
    parser.add_argument("--reclaim", action="store_true", help="send borrowers away for owners")
    asked = parser.parse_args()
    specs, jobs = generate(cohorts=asked.cohorts, members=asked.members, counts=COUNTS[asked.scale])
    kind = Reclaiming if asked.reclaim else Replay
    replay = kind(specs, nodes=asked.cohorts * asked.members * NOMINAL // 2_000, cards=20)
    began = time.perf_counter()
    makespan = replay.run(jobs, step=asked.step)
    took = time.perf_counter() - began
    done = [job for job in jobs if job.ended is not None]
    work = sum(job.work for job in jobs)
    ideal = work / (NOMINAL * asked.cohorts * asked.members)
    print(f"workloads {len(done)} of {len(jobs)} ended, pods {replay.decided}")
    print(f"makespan {makespan:.1f} s, ideal {ideal:.1f} s, ratio {makespan / ideal:.3f}, use {ideal / makespan:.1%}")
    if isinstance(replay, Reclaiming):
        print(f"{replay.sent_away} workloads were sent away, and began anew")
    print(f"took {took:.1f} s of real time, {sum(replay.spent):.1f} s of it deciding")
    print(
        f"{len(done) / sum(replay.spent):.0f} workloads/s and {replay.decided / sum(replay.spent):.0f} pods/s decided"
    )
    for size, kueue in KUEUE.items():
        waits = [job.admitted - job.at for job in done if job.kind == size and job.admitted is not None]
        print(f"{size:7} mean time to admission {mean(waits):6.1f} s (Kueue {kueue} s, its baseline)")
    figures = Asked()
    figures.at_least("workloads ended", len(done), len(jobs))
    if asked.scale == "baseline" and not asked.reclaim:
        figures.at_most("makespan by the ideal", makespan / ideal, 1.3)
        figures.at_least("use in percent", 100 * ideal / makespan, 77.0)
    if asked.scale == "large":
        figures.at_least("workloads decided in a second", len(done) / sum(replay.spent), 300.0)
    figures.end()


if __name__ == "__main__":
    main()
