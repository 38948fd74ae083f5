"""Makes jobs by the clock: the shell round `cron_plan`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.objects import ObjectReference
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.errors import AlreadyExistsError, ApiError
from aliquot_kube.events import EventRecorder
from aliquot_kube.mirror import Mirror
from aliquot_kube.questions import Transport
from aliquot_standalone.controllers.cron_plan import CronPlan, plan
from aliquot_standalone.controllers.newest import Newest, key_of
from aliquot_standalone.controllers.objects import BATCH, CRON_JOBS, JOBS, CronJob, CronJobStatus, Job
from aliquot_standalone.controllers.rounds import Rounds
from aliquot_standalone.controllers.writes import Writer

log = logging.getLogger(__name__)


class CronJobController:
    """Keeps every cron job going until cancelled."""

    def __init__(self, *, transport: Transport, clock: Clock, random: Random, events: EventRecorder) -> None:
        self._clock = clock
        self._events = events
        self._writer = Writer(transport=transport)
        self._cron_mirror = Mirror(transport=transport, clock=clock, random=random, resource=CRON_JOBS)
        self._jobs_mirror = Mirror(transport=transport, clock=clock, random=random, resource=JOBS)
        self._crons: Newest[CronJob] = Newest()
        self._jobs: Newest[Job] = Newest()
        self._names: dict[str, str] = {}
        self._rounds = Rounds(clock=clock, see_to=self._sync)

    async def run(self) -> None:
        """Follow cron jobs and their jobs, and do what they need."""
        self._cron_mirror.subscribe(self._cron_changed)
        self._jobs_mirror.subscribe(self._job_changed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cron_mirror.run())
            tasks.create_task(self._jobs_mirror.run())
            await self._cron_mirror.synced()
            await self._jobs_mirror.synced()
            await self._rounds.run()

    # --- what is told ------------------------------------------------------------------------------------------------
    def _cron_changed(self, change: Change[CronJob]) -> None:
        if isinstance(change, Added | Modified):
            self._crons.put(change.new)
            self._names[change.new.metadata.uid] = key_of(change.new)
            self._rounds.mark(key_of(change.new))
        elif isinstance(change, Deleted):
            self._crons.drop(change.old)
            self._names.pop(change.old.metadata.uid, None)
            self._rounds.mark(key_of(change.old))

    def _job_changed(self, change: Change[Job]) -> None:
        if isinstance(change, Added | Modified):
            self._jobs.put(change.new)
            self._mark_owner(change.new)
        elif isinstance(change, Deleted):
            self._jobs.drop(change.old)
            self._mark_owner(change.old)

    def _mark_owner(self, job: Job) -> None:
        if (key := self._names.get(job.metadata.controller)) is not None:
            self._rounds.mark(key)

    # --- what is done ------------------------------------------------------------------------------------------------
    async def _sync(self, key: str) -> None:
        cron = self._crons.get(key)
        if cron is None:
            self._rounds.forget(key)
            return
        wall = self._clock.wall()
        own = [job for job in self._jobs.values() if job.metadata.controller == cron.metadata.uid]
        decided = plan(cron, own, now=wall)
        self._rounds.again(key, at=decided.again_at)
        await self._carry_out(cron, decided)

    async def _carry_out(self, cron: CronJob, decided: CronPlan) -> None:
        for job in decided.delete:
            await self._writer.delete(JOBS, job, propagation="Background")
        if decided.create is not None:
            await self._make(cron, decided.create)
        if decided.status != cron.status:
            # After the job was made: should we end in between, its name keeps it from being made twice.
            self._crons.put(await self._writer.status(CRON_JOBS, cron, status_fields(decided.status)))

    async def _make(self, cron: CronJob, manifest: Mapping[str, Any]) -> None:
        try:
            self._jobs.put(await self._writer.create(JOBS, manifest))
        except AlreadyExistsError:
            log.debug("was made before", extra={"job": manifest["metadata"]["name"]})
        except ApiError as error:
            self._note(cron, reason="FailedCreate", note=f"no job could be made: {error}", warning=True)
            raise
        else:
            self._note(cron, reason="SuccessfulCreate", note=f"made {manifest['metadata']['name']}", warning=False)

    def _note(self, cron: CronJob, *, reason: str, note: str, warning: bool) -> None:
        meta = cron.metadata
        regarding = ObjectReference(
            api_version=BATCH, kind="CronJob", namespace=meta.namespace, name=meta.name, uid=meta.uid
        )
        self._events.tell(regarding=regarding, reason=reason, action="Scheduling", note=note, warning=warning)


def status_fields(status: CronJobStatus) -> Mapping[str, Any]:
    """Name every field, so that what no longer holds does not stay."""
    return {
        "active": msgspec.to_builtins(status.active) or None,
        "lastScheduleTime": status.last_schedule_time,
        "lastSuccessfulTime": status.last_successful_time,
    }
