"""How much of the GPUs could be given away in a backlog by whoever knows how long each pod will run, and moves nobody.

    python benchmarks/waiting/hindsight.py [--nodes 4 8] [--k 1.0 0.6 0.4 0.3 0.25] [--seed 0]

The cells and the arrivals of `openb.py`, one bootstrap of them; the very machines, clock and measure, and another
policy: waiting pods in one of five orders; for the first of several GPUs that does not fit the node is kept on which
it will fit soonest, and whoever is gone by then may lie there meanwhile (EASY back-filling with true run times). The
best of them is no optimum: what it reaches can be reached without moving, what lies above may be or not. Each rule
takes 3 s of CPU in a cell, two and a half minutes in all.
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.waiting.openb import CELLS, timetable

from aliquot_scheduler.simulating.fleet import Rows
from aliquot_scheduler.simulating.policies import BestFit
from aliquot_scheduler.simulating.timed.clockwork import NEVER, Clockwork
from aliquot_scheduler.simulating.timed.ground import Ground, Start
from aliquot_scheduler.simulating.timed.job import Job
from aliquot_scheduler.simulating.timed.meter import Meter
from aliquot_scheduler.simulating.timed.openings import Openings
from aliquot_scheduler.simulating.timed.told import TimedReport, told
from aliquot_scheduler.simulating.workload import Need

# Who wants as many waits for others of its node to end; most of the trace's pods want one at most.
WIDE = 2

Order = Callable[[Job, Need], tuple[float, ...]]
ORDERS: dict[str, Order] = {
    "first come": lambda job, _: (job.number,),
    "wide first": lambda job, need: (-need.gpus, job.number),
    "wide and long first": lambda job, need: (-need.gpus, -job.runs),
    "short first": lambda job, _: (job.runs,),
    "short for its GPUs first": lambda job, need: (job.runs / need.gpus,),
}


class Foreseeing:
    """The policy; of one kind of jobs, in the order that is asked for, each is looked at until one has no room."""

    def __init__(self, *, ground: Ground, order: Order) -> None:
        self._ground = ground
        self._order = order
        self._rating = BestFit(ground.fleet)
        self._openings = Openings(fleet=ground.fleet, needs=ground.needs)
        self._lines: list[list[tuple[tuple[float, ...], int, Job]]] = [[] for _ in ground.needs]
        # By machine and job: what runs there, and when it ends.
        self._running: list[dict[int, tuple[float, Start]]] = [{} for _ in range(ground.fleet.size)]
        self._where: dict[int, int] = {}

    def arrived(self, job: Job, *, now: float) -> None:
        """It goes to its place in its line."""
        del now
        bisect.insort(self._lines[job.need], (self._order(job, self._ground.needs[job.need]), job.number, job))

    def ended(self, job: Job, *, now: float) -> None:
        """Its machine has more room."""
        del now
        row = self._where.pop(job.number)
        del self._running[row][job.number]
        self._openings.changed(row)

    def look_again(self, now: float) -> float:
        """Nothing changes by time alone."""
        del now
        return NEVER

    def actions(self, now: float) -> Iterator[Start]:
        """In the order, who has room; from the first wide one that has none, only who is not in its way."""
        kept: tuple[int, float] | None = None
        # The next of each kind to be looked at: its order, its number, its kind and its place in the line.
        heads = [(*line[0][:2], kind, 0) for kind, line in enumerate(self._lines) if line]
        heapq.heapify(heads)
        while heads:
            _, _, kind, at = heapq.heappop(heads)
            line, need, job = self._lines[kind], self._ground.needs[kind], self._lines[kind][at][2]
            able = self._openings.able[kind].copy()
            if not able.any() and (kept or need.gpus < WIDE):
                continue
            if kept and now + job.runs > kept[1]:
                able[kept[0]] = False
            if able.any():
                del line[at]
                start = self._place(job, need, np.flatnonzero(able))
                yield start
                self._started(start, now=now)
            else:
                kept = kept or self._soonest(need, now=now)
                at += 1
            if at < len(line):
                heapq.heappush(heads, (*line[at][:2], kind, at))

    def _place(self, job: Job, need: Need, some: Rows) -> Start:
        found = self._rating.rate(need, some)
        best = int(found.cost.argmin())
        row, gpus = int(some[best]), (int(found.gpu[best]),)
        if not need.shared:
            takes = self._ground.fleet.takes(need, np.array([row]))[:, 0]
            gpus = tuple(np.flatnonzero(takes)[: need.gpus].tolist())
        return Start(job=job, row=row, gpus=gpus)

    def _started(self, start: Start, *, now: float) -> None:
        job, row = start.job, start.row
        self._where[job.number] = row
        self._running[row][job.number] = now + job.runs, start
        self._openings.changed(row)

    def _soonest(self, need: Need, *, now: float) -> tuple[int, float] | None:
        """The machine on which it will fit first, and when."""
        when, row = min((self._fits(need, row, now=now), row) for row in range(self._ground.fleet.size))
        return (row, when) if when < math.inf else None

    def _fits(self, need: Need, row: int, *, now: float) -> float:
        """When it will on this machine, if nobody comes any more."""
        fleet = self._ground.fleet
        milli, cores, memory = fleet.milli[:, row].copy(), int(fleet.cores[row]), int(fleet.memory[row])
        ends = sorted(self._running[row].values(), key=lambda one: one[0])
        for end, start in [(now, None), *ends]:
            gone = self._ground.needs[start.job.need] if start else None
            for gpu in start.gpus if start else ():
                milli[gpu] += gone.milli if gone else 0
            cores, memory = cores + (gone.cores if gone else 0), memory + (gone.memory if gone else 0)
            if (milli >= need.milli).sum() >= need.gpus and cores >= need.cores and memory >= need.memory:
                return end
        return math.inf


def played(*, nodes: int, k: float, seed: int, order: str) -> TimedReport:
    """One run."""
    asked = timetable(nodes=nodes, k=k, seed=seed, gpus_only=True)
    ground = Ground(machines=asked.machines, needs=asked.needs)
    meter = Meter(asked, limits={})
    policy = Foreseeing(ground=ground, order=ORDERS[order])
    for _ in Clockwork(asked, ground=ground, policy=policy, watcher=meter).steps():
        pass
    return told(meter, asked, policy=order, seed=seed, seconds=0.0, partial=False)


def main(argv: Sequence[str]) -> int:
    """A row for each cell and order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, nargs="+", default=sorted({nodes for nodes, _ in CELLS}))
    parser.add_argument("--k", type=float, nargs="+", default=sorted({k for _, k in CELLS}, reverse=True))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(argv)
    print("| nodes, k | order | in a full backlog, %; by then | hours of it | mean wait, min | completion, h |")
    print("|---|---|--:|--:|--:|--:|")
    for nodes in asked.nodes:
        for k in asked.k:
            for order in ORDERS:
                found = played(nodes=nodes, k=k, seed=asked.seed, order=order)
                full, hours = found.full_backlog.allocated_pct or math.nan, found.full_backlog.hours
                by_then = found.by_then.mean_pct if found.by_then else math.nan
                waits = f"{found.wait.mean / 60:.0f} | {found.completion.mean / 3600:.1f}"
                print(f"| {nodes}, {k:g} | {order} | {full:.1f}; {by_then:.1f} | {hours:.0f} | {waits} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
