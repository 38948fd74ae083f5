"""Jobs in simulated time before the real queues and the real desk: whoever is let in is bound at once, and runs.

What a job takes of real time is what deciding takes; what it waits in simulated time is what the order makes of it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from aliquot_core.objects import Pod
from aliquot_scheduler.deciding.desk import Desk
from aliquot_scheduler.deciding.turns import Turn
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.showings import written
from support.centre import NAMES, WALL, asks, gpus, make_lease, make_node, picture_with, with_grant

GATED = {"schedulingGates": [{"name": NAMES.gate}]}
# Agents beat on, however the simulation leaps.
FOR_EVER = 10**8


@dataclass(kw_only=True)
class Job:
    """So many equal pods that start together, in simulated seconds."""

    name: str
    queue: str
    user: str
    kind: str
    at: float
    runs: float
    compute: int = 100
    # None where it is left out.
    memory: int | None = 1_000
    pods: int = 1
    # Of a group, with how many it starts; 0 is with all.
    minimum: int = 0
    gpus: int = 0
    priority: int = 0
    admitted: float | None = None
    ended: float | None = None
    left: int = field(default=0)

    @property
    def work(self) -> float:
        """Percent times seconds."""
        return self.compute * self.pods * self.runs


class Replay:
    """A cluster, its queues, and the jobs."""

    def __init__(
        self,
        specs: Mapping[str, QueueSpec],
        *,
        nodes: int,
        cards: int,
        settings: QueueSettings | None = None,
        memory: int = 80_000,
    ) -> None:
        self.now = 0.0
        made = [make_node(f"n{at:04}", gpus(f"n{at:04}", cards, memory=memory)) for at in range(nodes)]
        self.picture = picture_with(*made)
        for node in made:
            lease = make_lease(node.metadata.name, renewed="2026-11-21T10:00:01.000000Z")
            spec = msgspec.structs.replace(lease.spec, lease_duration_seconds=FOR_EVER)
            self.picture.lease_seen(msgspec.structs.replace(lease, spec=spec), wall=WALL)
        self.queues = Queues(
            names=NAMES, random=lambda: 0.5, picture=self.picture, settings=settings or QueueSettings()
        )
        self.desk = Desk(picture=self.picture, names=NAMES, turns=self.queues)
        self.queues.queues_seen(specs)
        self.jobs: dict[str, Job] = {}
        self.running: dict[str, tuple[Job, list[Pod]]] = {}
        self._waiting: dict[str, tuple[Job, Pod]] = {}
        self._ends: list[tuple[float, str]] = []
        self.decided = 0
        self.spent: list[float] = []

    # --- events ------------------------------------------------------------------------------------------------------
    def submit(self, job: Job) -> None:
        """A job's pods are created behind their gates."""
        self.jobs[job.name] = job
        job.left = job.pods
        for number in range(job.pods):
            uid = f"{job.name}-{number}"
            pod = self._pod(job, uid)
            self._waiting[uid] = job, pod
            self._see(pod)

    def decide(self) -> None:
        """Rounds of turns, each let in bound at once, until nobody is let in any more."""
        began = time.process_time()
        while turns := list(self.queues.turns(self.desk, now=self.now)):
            for turn in turns:
                if turn.promise is None:
                    self._show(turn)
                    continue
                job, pod = self._waiting.pop(turn.pod.metadata.uid)
                self._bind(job, with_grant(pod, turn.promise.plan.grant))
            self.decided += len(turns)
        self.spent.append(time.process_time() - began)

    def end_due(self) -> None:
        """Whose time is over."""
        while self._ends and self._ends[0][0] <= self.now:
            _, name = heapq.heappop(self._ends)
            self.end(name)

    def end(self, name: str) -> None:
        """A job that runs is over."""
        job, pods = self.running.pop(name)
        job.ended = self.now
        for pod in pods:
            self.desk.pod_gone(pod)
            self.queues.pod_gone(pod.metadata.uid)

    def give_up(self, name: str) -> None:
        """A job of one pod that waits is deleted."""
        job, pod = self._waiting.pop(f"{name}-0")
        job.admitted = float("inf")
        self.desk.pod_gone(pod)
        self.queues.pod_gone(pod.metadata.uid)

    def waiting_of(self, name: str) -> list[str]:
        """The pods of a job that wait (UIDs)."""
        return [uid for uid, (job, _) in self._waiting.items() if job.name == name]

    def take_out(self, uid: str) -> tuple[Job, Pod]:
        """One pod that waits is deleted, and may be made again."""
        job, pod = self._waiting.pop(uid)
        self.desk.pod_gone(pod)
        self.queues.pod_gone(uid)
        return job, pod

    def make_again(self, job: Job, pod: Pod) -> None:
        """As it was."""
        self._waiting[pod.metadata.uid] = job, pod
        self._see(pod)

    def next_end(self) -> float | None:
        """When the next job ends."""
        return self._ends[0][0] if self._ends else None

    def run(self, jobs: Iterable[Job], *, step: float = 0.0, until: float = float("inf")) -> float:
        """Let all arrive and end; at most one round of decisions in each `step`. When the last one ended."""
        coming = sorted(jobs, key=lambda job: (job.at, job.name), reverse=True)
        while (coming or self._ends or self._waiting) and self.now < until:
            times = [coming[-1].at] if coming else []
            times += [end] if (end := self.next_end()) is not None else []
            if not times:
                break
            due = min(times)
            self.now = max(self.now + step, due) if step else due
            self.end_due()
            while coming and coming[-1].at <= self.now:
                self.submit(coming.pop())
            self.desk.tell_time(self.now)
            self.decide()
        return self.now

    # --- how it is done ----------------------------------------------------------------------------------------------
    def _show(self, turn: Turn) -> None:
        """Its gate is lifted, and it waits."""
        job, pod = self._waiting[turn.pod.metadata.uid]
        said = written(wall=WALL + self.now, times=turn.shown, queue=turn.queue)
        meta = msgspec.structs.replace(pod.metadata, annotations=pod.metadata.annotations | {NAMES.shown: said})
        shown = msgspec.structs.replace(pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, scheduling_gates=[]))
        self._waiting[pod.metadata.uid] = job, shown
        self._see(shown)

    def _pod(self, job: Job, uid: str) -> Pod:
        labels = {NAMES.queue: job.queue}
        notes = {NAMES.gpus: str(job.gpus)} if job.gpus else {}
        if job.pods > 1:
            labels[NAMES.group] = job.name
            notes[NAMES.group_size] = str(job.pods)
            notes |= {NAMES.group_min: str(job.minimum)} if job.minimum else {}
        born = datetime.fromtimestamp(WALL + job.at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return asks(
            uid,
            job.compute,
            job.memory,
            annotations=notes,
            spec={**GATED, "priority": job.priority},
            labels=labels,
            namespace=job.user,
            creationTimestamp=born,
        )

    def _bind(self, job: Job, pod: Pod) -> None:
        self._see(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=[])))
        _, pods = self.running.setdefault(job.name, (job, []))
        pods.append(pod)
        job.left -= 1
        if not job.left:
            job.admitted = self.now
            heapq.heappush(self._ends, (self.now + job.runs, job.name))

    def _see(self, pod: Pod) -> None:
        self.desk.pod_seen(pod)
        self.queues.pod_seen(pod)


def mean(values: Sequence[float]) -> float:
    """The mean, of nothing 0."""
    return sum(values) / len(values) if values else 0.0
