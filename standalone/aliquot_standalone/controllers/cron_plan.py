"""What a cron job needs now: a job made, others deleted, its status. Pure: (cron job, its jobs, now) → plan.

A time that was missed is made up for once, the latest of them, unless its deadline has passed. What must always hold:
one time makes one job, for the job's name says the minute; with `Forbid` no second job begins beside one at work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from aliquot_core.instants import second_time, seconds_of
from aliquot_standalone.apiserver.cron_schedules import latest_within, next_after, read_schedule
from aliquot_standalone.controllers.job_pods import owned_by
from aliquot_standalone.controllers.objects import BATCH, CronJob, CronJobStatus, Job, Reference

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MINUTE = 60


class CronPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: deletions first."""

    status: CronJobStatus
    delete: Sequence[Job] = ()
    create: Mapping[str, Any] | None = None
    again_at: float | None = None


def plan(cron: CronJob, jobs: Sequence[Job], *, now: float) -> CronPlan:
    """Decide what a cron job needs."""
    active = [job for job in jobs if not job.finished]
    old = _outlived(cron, jobs)
    status = _status(cron, jobs, active)
    if cron.spec.suspend or cron.metadata.deletion_timestamp:
        return CronPlan(status=status, delete=old)
    schedule, zone = read_schedule(cron.spec.schedule), ZoneInfo(cron.spec.time_zone or "UTC")
    again_at = next_after(schedule, now, zone=zone)
    due = latest_within(schedule, after=_since(cron, now=now), until=now, zone=zone)
    if due is None or (active and cron.spec.concurrency_policy == "Forbid"):
        return CronPlan(status=status, delete=old, again_at=again_at)
    replaced = active if cron.spec.concurrency_policy == "Replace" else []
    return CronPlan(
        status=msgspec.structs.replace(status, last_schedule_time=second_time(due)),
        delete=[*old, *replaced],
        create=_job_of(cron, due=due, zone=zone),
        again_at=again_at,
    )


def _since(cron: CronJob, *, now: float) -> float:
    """From when on times count that were missed."""
    began = seconds_of(cron.status.last_schedule_time) or seconds_of(cron.metadata.creation_timestamp) or now
    deadline = cron.spec.starting_deadline_seconds
    return began if deadline is None else max(began, now - deadline)


def _outlived(cron: CronJob, jobs: Sequence[Job]) -> list[Job]:
    """Ended jobs beyond what is kept, oldest first."""
    found: list[Job] = []
    limits = {"Complete": cron.spec.successful_jobs_history_limit, "Failed": cron.spec.failed_jobs_history_limit}
    for kind, limit in limits.items():
        ended = [job for job in jobs if job.finished and job.finished.type == kind]
        ended.sort(key=lambda job: (job.status.start_time or "", job.metadata.name))
        found += ended[: max(len(ended) - limit, 0)]
    return found


def _status(cron: CronJob, jobs: Sequence[Job], active: Sequence[Job]) -> CronJobStatus:
    succeeded = [job.status.completion_time for job in jobs if job.status.completion_time]
    return CronJobStatus(
        active=tuple(_reference(job) for job in sorted(active, key=lambda job: job.metadata.name)),
        last_schedule_time=cron.status.last_schedule_time,
        last_successful_time=max([*succeeded, cron.status.last_successful_time or ""]) or None,
    )


def _reference(job: Job) -> Reference:
    meta = job.metadata
    return Reference(api_version=BATCH, kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _job_of(cron: CronJob, *, due: float, zone: ZoneInfo) -> Mapping[str, Any]:
    meta, template = cron.metadata, cron.spec.job_template
    local = second_time(due) if zone.key == "UTC" else f"{second_time(due)} ({zone.key})"
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": {
            "name": f"{meta.name}-{int(due) // _MINUTE}",
            "namespace": meta.namespace,
            "labels": dict(template.metadata.get("labels", {})),
            "annotations": {**template.metadata.get("annotations", {}), _SCHEDULED: local},
            "ownerReferences": owned_by(meta, kind="CronJob"),
        },
        "spec": template.spec,
    }
