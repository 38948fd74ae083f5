"""Jobs, cron jobs and their pods, as far as their controllers read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_core.objects import ContainerStatus, ObjectMeta, PodCondition
from aliquot_kube.resources import Resource

TRACKING = "batch.kubernetes.io/job-tracking"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEXED = "Indexed"
BATCH = "batch/v1"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings."""


class OwnedMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata with what holds the object."""

    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> str:
        """The uid of the one who made it; empty if nobody says so."""
        return next((one.uid for one in self.owner_references if one.controller), "")


class WorkStatus(ContainerStatus, frozen=True, kw_only=True):
    """How a container fares, and how often it was started again."""

    restart_count: int = 0


class _WorkPodStatus(_Part, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[WorkStatus, ...] = ()
    init_container_statuses: tuple[WorkStatus, ...] = ()


class WorkPod(_Part, frozen=True, kw_only=True):
    """A pod of a job."""

    metadata: OwnedMeta = OwnedMeta()
    status: _WorkPodStatus = _WorkPodStatus()

    @property
    def tracked(self) -> bool:
        """Whether it still waits to be counted."""
        return TRACKING in self.metadata.finalizers

    @property
    def succeeded(self) -> bool:
        """Whether it did what it was to do."""
        return self.status.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether it will not: one that is being deleted counts, as on a cluster."""
        return self.status.phase == "Failed" or (not self.succeeded and self.metadata.deletion_timestamp is not None)

    @property
    def active(self) -> bool:
        """Whether it is on its way or at work."""
        return not (self.succeeded or self.failed)

    @property
    def ready(self) -> bool:
        """Whether it is at work."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)

    @property
    def index(self) -> int | None:
        """Which part of an indexed job it does."""
        text = self.metadata.annotations.get(INDEX, "")
        return int(text) if text.isdecimal() else None

    @property
    def restarts(self) -> int:
        """How often its containers were started again."""
        return sum(one.restart_count for one in (*self.status.init_container_statuses, *self.status.container_statuses))


class JobSpec(_Part, frozen=True, kw_only=True):
    """What a job is to do."""

    template: Mapping[str, Any] = msgspec.field(default_factory=dict)
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False


class Uncounted(_Part, frozen=True, kw_only=True):
    """Pods that have ended and still bear our finalizer, or bore it when this was written."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(_Part, frozen=True, kw_only=True):
    """How far a job is."""

    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    uncounted_terminated_pods: Uncounted = Uncounted()
    conditions: tuple[PodCondition, ...] = ()

    def holds(self, kind: str) -> PodCondition | None:
        """Give a condition that is true."""
        return next((one for one in self.conditions if one.type == kind and one.status == "True"), None)


class Job(_Part, frozen=True, kw_only=True):
    """A job."""

    metadata: OwnedMeta = OwnedMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def indexed(self) -> bool:
        """Whether each of its pods has a part of its own."""
        return self.spec.completion_mode == INDEXED

    @property
    def finished(self) -> PodCondition | None:
        """The condition that says how it ended."""
        return self.status.holds("Complete") or self.status.holds("Failed")


class _JobTemplate(_Part, frozen=True, kw_only=True):
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    spec: Mapping[str, Any] = msgspec.field(default_factory=dict)


class CronJobSpec(_Part, frozen=True, kw_only=True):
    """When jobs are to be made, and which."""

    schedule: str = ""
    time_zone: str = ""
    job_template: _JobTemplate = _JobTemplate()
    concurrency_policy: str = "Allow"
    suspend: bool = False
    starting_deadline_seconds: int | None = None
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1


class Reference(_Part, frozen=True, kw_only=True):
    """An object by its name."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CronJobStatus(_Part, frozen=True, kw_only=True):
    """What came of it so far."""

    active: tuple[Reference, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(_Part, frozen=True, kw_only=True):
    """A cron job."""

    metadata: OwnedMeta = OwnedMeta()
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


WORK_PODS = Resource(group="", version="v1", plural="pods", kind="Pod", type=WorkPod)
JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", type=Job)
CRON_JOBS = Resource(group="batch", version="v1", plural="cronjobs", kind="CronJob", type=CronJob)
