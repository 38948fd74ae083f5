"""All controllers together, with one voice for Events."""

from __future__ import annotations

import asyncio

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.questions import Transport
from aliquot_standalone.controllers.cron_jobs import CronJobController
from aliquot_standalone.controllers.jobs import JobController


class Controllers:
    """Jobs and cron jobs of one API server."""

    def __init__(self, *, transport: Transport, clock: Clock, random: Random) -> None:
        self._events = EventRecorder(
            client=KubeClient(transport=transport),
            clock=clock,
            random=random,
            controller="aliquot-controllers",
            instance="aliquot-up",
            ledger=EventLedger(),
        )
        self._parts = (
            JobController(transport=transport, clock=clock, random=random, events=self._events),
            CronJobController(transport=transport, clock=clock, random=random, events=self._events),
        )

    async def run(self) -> None:
        """Run until cancelled; only a defect of ours ends it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            for part in self._parts:
                tasks.create_task(part.run())
