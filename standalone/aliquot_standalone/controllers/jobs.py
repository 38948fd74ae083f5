"""Runs jobs: the shell round `job_plan`."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.objects import ObjectReference
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.errors import ApiError
from aliquot_kube.events import EventRecorder
from aliquot_kube.mirror import Mirror
from aliquot_kube.questions import Transport
from aliquot_standalone.controllers.job_plan import Plan, plan
from aliquot_standalone.controllers.job_pods import pod_of
from aliquot_standalone.controllers.newest import Newest, key_of
from aliquot_standalone.controllers.objects import BATCH, JOB_NAME, JOBS, TRACKING, WORK_PODS, Job, JobStatus, WorkPod
from aliquot_standalone.controllers.rounds import Rounds
from aliquot_standalone.controllers.writes import Writer

log = logging.getLogger(__name__)


class JobController:
    """Keeps every job going until cancelled."""

    def __init__(self, *, transport: Transport, clock: Clock, random: Random, events: EventRecorder) -> None:
        self._clock = clock
        self._events = events
        self._writer = Writer(transport=transport)
        self._jobs_mirror = Mirror(transport=transport, clock=clock, random=random, resource=JOBS)
        self._pods_mirror = Mirror(
            transport=transport, clock=clock, random=random, resource=WORK_PODS, label_selector=JOB_NAME
        )
        self._jobs: Newest[Job] = Newest()
        self._pods: defaultdict[str, Newest[WorkPod]] = defaultdict(Newest)
        self._names: dict[str, str] = {}
        self._rounds = Rounds(clock=clock, see_to=self._see_to)

    async def run(self) -> None:
        """Follow jobs and their pods, and do what they need."""
        self._jobs_mirror.subscribe(self._job_changed)
        self._pods_mirror.subscribe(self._pod_changed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._jobs_mirror.run())
            tasks.create_task(self._pods_mirror.run())
            # A job whose pods are not all known would have others made.
            await self._jobs_mirror.synced()
            await self._pods_mirror.synced()
            await self._rounds.run()

    # --- what is told ------------------------------------------------------------------------------------------------
    def _job_changed(self, change: Change[Job]) -> None:
        if isinstance(change, Added | Modified):
            self._jobs.put(change.new)
            self._names[change.new.metadata.uid] = key_of(change.new)
            self._rounds.mark(key_of(change.new))
        elif isinstance(change, Deleted):
            self._jobs.drop(change.old)
            self._names.pop(change.old.metadata.uid, None)
            self._rounds.mark(key_of(change.old))
            if change.old.metadata.uid in self._pods:
                self._orphaned(change.old.metadata.uid)

    def _pod_changed(self, change: Change[WorkPod]) -> None:
        pod = (
            change.old if isinstance(change, Deleted) else change.new if isinstance(change, Added | Modified) else None
        )
        if pod is None or not (owner := pod.metadata.controller):
            return
        if isinstance(change, Deleted):
            self._pods[owner].drop(pod)
        else:
            self._pods[owner].put(pod)
        if owner in self._names:
            self._rounds.mark(self._names[owner])
        elif pod.tracked and not isinstance(change, Deleted):
            self._orphaned(owner)

    def _orphaned(self, owner: str) -> None:
        """Pods whose job is gone are held by nobody's count any more."""
        self._rounds.mark(f"/{owner}")

    # --- what is done ------------------------------------------------------------------------------------------------
    async def _see_to(self, key: str) -> None:
        await (self._let_go(key[1:]) if key.startswith("/") else self._sync(key))

    async def _let_go(self, owner: str) -> None:
        # At the start pods may be told of before their job.
        if owner in self._names:
            return
        for pod in self._pods[owner].values():
            if pod.tracked:
                await self._writer.release(pod, finalizer=TRACKING)
        # Not before: where one was written meanwhile, it is tried again with all that come after it.
        self._pods.pop(owner, None)

    async def _sync(self, key: str) -> None:
        job = self._jobs.get(key)
        if job is None:
            self._rounds.forget(key)
            return
        wall = self._clock.wall()
        decided = plan(job, self._pods[job.metadata.uid].values(), now=wall)
        self._rounds.again(key, at=decided.again_at)
        await self._carry_out(job, decided)

    async def _carry_out(self, job: Job, decided: Plan) -> None:
        if decided.status != job.status:
            self._tell(job, decided.status)
            job = await self._writer.status(JOBS, job, status_fields(decided.status))
            self._jobs.put(job)
        for pod in decided.release:
            await self._writer.release(pod, finalizer=TRACKING)
        for pod in decided.delete:
            await self._writer.delete(WORK_PODS, pod)
        pods = self._pods[job.metadata.uid]
        for index in decided.create:
            pods.put(await self._created(job, index=index))
        if decided.remove:
            await self._writer.delete(JOBS, job, propagation="Background")

    async def _created(self, job: Job, *, index: int | None) -> WorkPod:
        try:
            return await self._writer.create(WORK_PODS, pod_of(job, index=index))
        except ApiError as error:
            self._note(job, reason="FailedCreate", note=f"no pod could be made: {error}", warning=True)
            raise

    def _tell(self, job: Job, status: JobStatus) -> None:
        before = {one.type for one in job.status.conditions if one.status == "True"}
        for one in status.conditions:
            if one.status == "True" and one.type not in before:
                self._note(job, reason=one.type, note=one.message, warning=one.type == "Failed")

    def _note(self, job: Job, *, reason: str, note: str, warning: bool) -> None:
        meta = job.metadata
        regarding = ObjectReference(
            api_version=BATCH, kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid
        )
        self._events.tell(regarding=regarding, reason=reason, action="Running", note=note, warning=warning)


def status_fields(status: JobStatus) -> Mapping[str, Any]:
    """Name every field, so that what no longer holds does not stay."""
    uncounted = status.uncounted_terminated_pods
    entries = {"succeeded": list(uncounted.succeeded), "failed": list(uncounted.failed)}
    return {
        "active": status.active,
        "ready": status.ready,
        "terminating": status.terminating,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "startTime": status.start_time,
        "completionTime": status.completion_time,
        "completedIndexes": status.completed_indexes or None,
        "uncountedTerminatedPods": {name: uids or None for name, uids in entries.items()},
        "conditions": msgspec.to_builtins(status.conditions) or None,
    }
