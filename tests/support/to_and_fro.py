"""Jobs that are made again whenever their pod is sent away, and ask for the same: who goes to and fro is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from aliquot_scheduler.queues.said.spec import QueueSpec
from support.reclaim_stage import ReclaimStage

# Decisions after each wave, before the next one comes.
BETWEEN = 3


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one queue that come together."""

    queue: str
    count: int
    compute: int = 100
    memory: int = 1_000
    priority: int = 0
    notes: Mapping[str, str] = {}
    group: str = ""
    # Whether whoever makes them ends all of them when one is sent away, and makes all anew.
    restarts: bool = False


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Queues on so many cards, and who comes one after the other; at least so many have to go in all.

    `ends` is how much compute is in use by whom in the end, where that is plain.
    """

    name: str
    queues: Mapping[str, QueueSpec]
    waves: Sequence[Wave]
    least: int
    nodes: tuple[int, ...] = (4,)
    ends: Mapping[str, int] = {}


class Jobs:
    """All that came."""

    def __init__(self, stage: ReclaimStage) -> None:
        self.stage = stage
        # How often each was sent away for others.
        self.sent = Counter[str]()
        self._waves: dict[str, Wave] = {}
        # The job of each pod that is there.
        self._job_of: dict[str, str] = {}
        self._tries = Counter[str]()

    def come(self, wave: Wave, number: int) -> None:
        """A wave's pods."""
        for at in range(wave.count):
            job = f"w{number}.{at}"
            self._waves[job] = wave
            self._make(job)

    def _make(self, job: str) -> None:
        uid, wave = f"{job}-{self._tries[job]}", self._waves[job]
        self._tries[job] += 1
        self._job_of[uid] = job
        self.stage.submit(
            uid,
            wave.compute,
            wave.memory,
            queue=wave.queue,
            priority=wave.priority,
            notes=wave.notes,
            group=wave.group,
        )

    def cycle(self) -> None:
        """Decide, send away, make again, let in."""
        self.stage.run(after=11.0)
        gone = [self._job_of.pop(uid) for uid in self.stage.reclaimed()]
        self.sent.update(gone)
        for job in [*gone, *self._ended_with(gone)]:
            self._make(job)

    def _ended_with(self, gone: Sequence[str]) -> list[str]:
        """Jobs whose maker starts them anew since others of theirs have gone."""
        waves = {job.partition(".")[0] for job in gone if self._waves[job].restarts}
        ended = {uid: job for uid, job in self._job_of.items() if job.partition(".")[0] in waves}
        for uid in ended:
            self.stage.gone(uid)
            del self._job_of[uid]
        return sorted(ended.values())


def played(shape: Shape, *, cycles: int) -> Jobs:
    """So many cycles, the waves at the beginning."""
    jobs = Jobs(ReclaimStage(shape.queues, nodes=shape.nodes))
    for number, wave in enumerate(shape.waves):
        jobs.come(wave, number)
        for _ in range(BETWEEN):
            jobs.cycle()
    for _ in range(cycles - BETWEEN * len(shape.waves)):
        jobs.cycle()
    return jobs
