"""Runs in time by the names that people use."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from enum import StrEnum

from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from aliquot_scheduler.simulating.timed.clockwork import Clockwork, Policy
from aliquot_scheduler.simulating.timed.fifo import Fifo
from aliquot_scheduler.simulating.timed.ground import Ground
from aliquot_scheduler.simulating.timed.job import Timetable, in_whole_gpus
from aliquot_scheduler.simulating.timed.meter import Meter
from aliquot_scheduler.simulating.timed.queued import Queued
from aliquot_scheduler.simulating.timed.told import TimedReport, told
from aliquot_scheduler.worth.mix import Mix

# Milli of a GPU that a percent is.
_PERCENT = 10


class TimedPolicy(StrEnum):
    """The policies."""

    # What the plain device plugin gives: a share takes a GPU for itself.
    WHOLE_GPU_FIFO = "whole-gpu-fifo"
    FIFO = "fifo"
    ALIQUOT = "aliquot"


class TimedRun:
    """One run, made ready."""

    def __init__(
        self,
        timetable: Timetable,
        *,
        policy: TimedPolicy,
        specs: Mapping[str, QueueSpec],
        settings: QueueSettings | None = None,
        rules: Rules = NO_RULES,
        slowdown: float = 0.0,
        grace: float = 0.0,
        mix: Mix | None = None,
        seed: int = 0,
    ) -> None:
        """Queues, rules, grace and a mix (else it is learnt) are for our own policy; without queues age decides."""
        self._timetable = timetable
        self._policy = policy
        self._seed = seed
        self._slowdown = slowdown
        whole = policy is TimedPolicy.WHOLE_GPU_FIFO
        needs = tuple(map(in_whole_gpus, timetable.needs)) if whole else timetable.needs
        ground = Ground(machines=timetable.machines, needs=needs)
        chosen: Policy = Fifo(ground=ground)
        if policy is TimedPolicy.ALIQUOT:
            chosen = Queued(
                timetable,
                ground=ground,
                specs=specs,
                settings=settings or QueueSettings(),
                rules=rules,
                grace=grace,
                mix=mix,
            )
        # Counted for who keeps none, too: so it is seen what they would be broken by.
        limits = {name: _PERCENT * one.compute.limit for name, one in specs.items() if one.compute.limit is not None}
        self.meter = Meter(timetable, limits=limits)
        self._clockwork = Clockwork(timetable, ground=ground, policy=chosen, watcher=self.meter, slowdown=slowdown)
        self._began = time.perf_counter()

    def steps(self) -> Iterator[int]:
        """Let it run; tells how many jobs have arrived."""
        return self._clockwork.steps()

    def report(self) -> TimedReport:
        """What came of it so far."""
        seconds = time.perf_counter() - self._began
        return told(
            self.meter,
            self._timetable,
            policy=str(self._policy),
            seed=self._seed,
            seconds=seconds,
            partial=not self._clockwork.over,
            slowdown=self._slowdown,
        )
