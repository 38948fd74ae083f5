"""Kueue's baseline generator before a real API server, kube-scheduler and the centre: makespan, waits, rates.

    .venv/bin/python benchmarks/cluster/kueue.py [--members 3] [--part 10]

The workloads of benchmarks/queues/kueue.py, every `--part`-th of each class, in one cohort of so many queues. Cards are
played, and a pod ends when this program says so, its workload's time after all of it are bound. Everything here runs on
one machine, so this is what API server and kube-scheduler make of it, not what queues do. Without their priorities.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec
from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.played_gpus import create_all
from cluster.queueing import queue
from support.kueue_workloads import COUNTS, KUEUE, NOMINAL, generate
from support.queue_replay import Job, mean

_GPUS_A_NODE = 8
_LOOK = 0.2


class Run:
    """Workloads on their way: created when they are due, ended when they have run."""

    def __init__(self, centre: PlayedCentre, jobs: list[Job]) -> None:
        self._centre = centre
        self._waiting = sorted(jobs, key=lambda job: (job.at, job.name), reverse=True)
        self._coming = dict[str, Job]()
        self._ends: list[tuple[float, str]] = []
        self._pods: defaultdict[str, list[Json]] = defaultdict(list)
        self._began = time.monotonic()
        self.admitted: dict[str, float] = {}

    def go(self) -> float:
        """Until all have ended; how long that took."""
        while self._waiting or self._coming or self._ends:
            self._create()
            self._see()
            self._end()
            time.sleep(_LOOK)
        return self._now()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _create(self) -> None:
        pods: list[Json] = []
        while self._waiting and self._waiting[-1].at <= self._now():
            job = self._waiting.pop()
            self._coming[job.name] = job
            pods += [_pod(job, number) for number in range(job.pods)]
        create_all(self._centre.cluster, pods)

    def _see(self) -> None:
        bound: defaultdict[str, list[Json]] = defaultdict(list)
        for namespace in {job.queue for job in self._coming.values()}:
            for pod in self._centre.holding(namespace):
                bound[pod["metadata"]["labels"]["workload"]].append(pod)
        for name in [name for name, job in self._coming.items() if len(bound[name]) == job.pods]:
            job = self._coming.pop(name)
            self.admitted[name] = self._now() - job.at
            self._pods[name] = bound[name]
            heapq.heappush(self._ends, (self._now() + job.runs, name))

    def _end(self) -> None:
        while self._ends and self._ends[0][0] <= self._now():
            _, name = heapq.heappop(self._ends)
            for pod in self._pods.pop(name):
                self._centre.end(pod)


def _pod(job: Job, number: int) -> Json:
    wanted = asking(f"{job.name}-{number}", job.queue, {"compute": "100"})
    meta = wanted["metadata"]
    labels = {**meta.get("labels", {}), NAMES.group: job.name, "workload": job.name}
    notes = {**meta.get("annotations", {}), NAMES.of("group-size"): str(job.pods)}
    return {**wanted, "metadata": {**meta, "labels": labels, "annotations": notes}}


def main() -> None:
    """Run it and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--part", type=int, default=10)
    asked = parser.parse_args()
    counts = {kind: count // asked.part for kind, count in COUNTS["baseline"].items()}
    specs, jobs = generate(cohorts=1, members=asked.members, counts=counts)
    gpus = NOMINAL // 100 * asked.members
    with ClusterHarness(Options(nodes=())) as cluster:
        centre = PlayedCentre(cluster, gpus=[_GPUS_A_NODE] * -(-gpus // _GPUS_A_NODE))
        centre.start()
        try:
            homes = [_home(name) for name in specs if specs[name].parent]
            with centre.applied([*(queue(name, **_spec(spec)) for name, spec in specs.items()), *homes]):
                run = Run(centre, jobs)
                _tell(run.go(), run, jobs, members=asked.members)
        finally:
            centre.stop()


def _spec(spec: QueueSpec) -> Json:
    found: Json = msgspec.to_builtins(spec)
    return found


def _home(name: str) -> Json:
    meta = {"name": name, "labels": {NAMES.queue: name}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _tell(took: float, run: Run, jobs: list[Job], *, members: int) -> None:
    pods, ideal = sum(job.pods for job in jobs), sum(job.work for job in jobs) / (NOMINAL * members)
    print(f"{len(jobs)} workloads, {pods} pods: {took:.1f} s, ideal {ideal:.1f} s")
    print(f"{len(jobs) / took:.1f} workloads/s, {pods / took:.1f} pods/s from creation to end")
    for kind, kueue in KUEUE.items():
        waits = [run.admitted[job.name] for job in jobs if job.kind == kind]
        print(f"{kind:7} mean time to admission {mean(waits):6.1f} s (Kueue {kueue} s, its baseline)")


if __name__ == "__main__":
    main()
