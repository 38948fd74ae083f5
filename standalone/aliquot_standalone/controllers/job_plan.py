"""What a job needs now: pods made or deleted, its status, its end. Pure: (job, its pods, now) → plan.

A job's end comes in two steps, as on a cluster: first it is known how it ends (`SuccessCriteriaMet`, `FailureTarget`)
and its pods are deleted, then, when none is left, it has ended (`Complete`, `Failed`). What must always hold: a job
that is known to end makes no pod; `Complete` and `Failed` are never taken back, and never stand side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot_core.instants import second_time, seconds_of
from aliquot_core.objects import PodCondition
from aliquot_standalone.controllers.job_counts import Counts, counted, write_indexes
from aliquot_standalone.controllers.objects import Job, JobStatus, WorkPod

_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 360.0
# More pods at once would be one long moment in which nothing else happens.
MOST_AT_ONCE = 500
_SUSPENDED, _COMPLETE, _FAILED = "Suspended", "Complete", "Failed"
_ENDED = frozenset({"Succeeded", "Failed"})
_TO_SUCCEED, _TO_FAIL = "SuccessCriteriaMet", "FailureTarget"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order: status, then finalizers, then pods."""

    status: JobStatus
    release: Sequence[WorkPod] = ()
    delete: Sequence[WorkPod] = ()
    # One for each pod to make: its index, or None.
    create: Sequence[int | None] = ()
    # The job's own time is over.
    remove: bool = False
    again_at: float | None = None


class _Course(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is to go on."""

    ends: PodCondition | None = None
    again_at: float | None = None


def plan(job: Job, pods: Sequence[WorkPod], *, now: float) -> Plan:
    """Decide what a job needs."""
    if job.finished or job.metadata.deletion_timestamp:
        return _afterwards(job, pods, now=now)
    counts = counted(job, pods)
    active = [pod for pod in pods if pod.active]
    course = _course(job, counts, active=active, now=now)
    if course.ends is not None:
        return _ending(job, pods, counts, course.ends, now=now)
    if job.spec.suspend:
        return _suspended(job, pods, counts, now=now)
    return _at_work(job, pods, counts, course, now=now)


def _afterwards(job: Job, pods: Sequence[WorkPod], *, now: float) -> Plan:
    """A job that has ended, or is to go, lets its pods go, and goes itself when its time is over."""
    release = [pod for pod in pods if pod.tracked]
    ended, ttl = job.finished, job.spec.ttl_seconds_after_finished
    if ended is None or ttl is None or job.metadata.deletion_timestamp:
        return Plan(status=job.status, release=release)
    due = (seconds_of(ended.last_transition_time) or now) + ttl
    return Plan(status=job.status, release=release, remove=due <= now, again_at=due if due > now else None)


def _course(job: Job, counts: Counts, *, active: Sequence[WorkPod], now: float) -> _Course:
    known = job.status.holds(_TO_FAIL) or job.status.holds(_TO_SUCCEED)
    if known:
        return _Course(ends=known)
    if why := _broken(job, counts, active=active):
        return _Course(ends=_condition(_TO_FAIL, "BackoffLimitExceeded", why, now=now))
    due = _deadline(job)
    if due is not None and due <= now:
        why = f"was at work longer than {job.spec.active_deadline_seconds} s"
        return _Course(ends=_condition(_TO_FAIL, "DeadlineExceeded", why, now=now))
    if _done(job, counts, active=active):
        return _Course(ends=_condition(_TO_SUCCEED, "CompletionsReached", "all its parts are done", now=now))
    return _Course(again_at=due)


def _broken(job: Job, counts: Counts, *, active: Sequence[WorkPod]) -> str:
    limit = job.spec.backoff_limit
    if counts.all_failed > limit:
        return f"{counts.all_failed} of its pods have failed, {limit} may"
    restarts = sum(pod.restarts for pod in active)
    if job.spec.template.get("spec", {}).get("restartPolicy") == "OnFailure" and restarts and restarts >= limit:
        return f"its containers were started again {restarts} times, {limit} may be"
    return ""


def _deadline(job: Job) -> float | None:
    began, limit = seconds_of(job.status.start_time), job.spec.active_deadline_seconds
    return None if began is None or limit is None or job.spec.suspend else began + limit


def _done(job: Job, counts: Counts, *, active: Sequence[WorkPod]) -> bool:
    succeeded = _succeeded(job, counts)
    if job.spec.completions is None:
        return succeeded > 0 and not active
    return succeeded >= job.spec.completions


def _succeeded(job: Job, counts: Counts) -> int:
    return counts.succeeded if job.indexed else counts.succeeded + len(counts.uncounted.succeeded)


def _ending(job: Job, pods: Sequence[WorkPod], counts: Counts, how: PodCondition, *, now: float) -> Plan:
    """Delete what still runs; when nothing is left and all is counted, the job has ended."""
    alive = [pod for pod in pods if pod.active]
    gone = not alive and not any(pod.metadata.deletion_timestamp for pod in pods)
    conditions = _with(job.status.conditions, how)
    status = _status(job, pods, counts, conditions=conditions, now=now)
    if gone and not (counts.uncounted.succeeded or counts.uncounted.failed):
        kind = _FAILED if how.type == _TO_FAIL else _COMPLETE
        final = _condition(kind, how.reason, how.message, now=now)
        ended = second_time(now) if kind == _COMPLETE else None
        status = msgspec.structs.replace(status, conditions=_with(conditions, final), completion_time=ended)
    return Plan(status=status, release=[*counts.release, *_tracked(alive)], delete=alive)


def _suspended(job: Job, pods: Sequence[WorkPod], counts: Counts, *, now: float) -> Plan:
    """Let all pods go, uncounted; time does not run for a job that is suspended."""
    conditions = job.status.conditions
    if job.status.holds(_SUSPENDED) is None:
        conditions = _with(conditions, _condition(_SUSPENDED, "JobSuspended", "it is not to go on for now", now=now))
    alive = [pod for pod in pods if pod.active]
    status = _status(job, pods, counts, conditions=conditions, now=now)
    status = msgspec.structs.replace(status, start_time=None)
    return Plan(status=status, release=[*counts.release, *_tracked(alive)], delete=alive)


def _at_work(job: Job, pods: Sequence[WorkPod], counts: Counts, course: _Course, *, now: float) -> Plan:
    conditions = job.status.conditions
    if job.status.holds(_SUSPENDED):
        resumed = _condition(_SUSPENDED, "JobResumed", "it goes on", now=now, status="False")
        conditions = _with(conditions, resumed)
    status = _status(job, pods, counts, conditions=conditions, now=now)
    active = [pod for pod in pods if pod.active]
    missing = _wanted(job, counts, active=len(active)) - len(active)
    surplus = sorted(active, key=lambda pod: pod.ready)[: max(-missing, 0)]
    pause = _pause_until(pods)
    rested = pause is None or pause <= now
    times = [at for at in (course.again_at, None if rested or missing <= 0 else pause) if at is not None]
    return Plan(
        status=status,
        # What we delete ourselves is no failure: it goes uncounted.
        release=[*counts.release, *_tracked(surplus)],
        delete=surplus,
        create=_places(job, counts, active, number=min(missing, MOST_AT_ONCE)) if rested else (),
        again_at=min(times, default=None),
    )


def _wanted(job: Job, counts: Counts, *, active: int) -> int:
    """How many pods should be at work."""
    done, spec = _succeeded(job, counts), job.spec
    if spec.completions is None:
        # The first that succeeds says that all is done: no more are begun.
        return min(active, spec.parallelism) if done else spec.parallelism
    return max(min(spec.parallelism, spec.completions - done), 0)


def _places(job: Job, counts: Counts, active: Sequence[WorkPod], *, number: int) -> Sequence[int | None]:
    if number <= 0 or not job.indexed:
        return [None] * max(number, 0)
    taken = counts.indexes | {pod.index for pod in active}
    free = (index for index in range(job.spec.completions or 0) if index not in taken)
    return [index for index, _ in zip(free, range(number), strict=False)]


def _pause_until(pods: Sequence[WorkPod]) -> float | None:
    """When pods may be made again: ever longer after failures with no success in between."""
    ended = (pod for pod in pods if pod.status.phase in _ENDED and pod.metadata.deletion_timestamp is None)
    ends = sorted((_ended_at(pod), pod.status.phase == "Failed") for pod in ended)
    failures = 0
    for _, failed in reversed(ends):
        if not failed:
            break
        failures += 1
    if not failures:
        return None
    return ends[-1][0] + float(min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE))


def _ended_at(pod: WorkPod) -> float:
    texts = [one.state.get("terminated", {}).get("finishedAt") for one in pod.status.container_statuses]
    # One that was refused on its node has no containers that could have ended.
    return max(seconds_of(text) or 0.0 for text in (*texts, pod.metadata.creation_timestamp))


def _status(
    job: Job, pods: Sequence[WorkPod], counts: Counts, *, conditions: tuple[PodCondition, ...], now: float
) -> JobStatus:
    active = [pod for pod in pods if pod.active]
    return JobStatus(
        active=len(active),
        ready=sum(pod.ready for pod in active),
        terminating=sum(pod.metadata.deletion_timestamp is not None for pod in pods),
        succeeded=counts.succeeded,
        failed=counts.failed,
        start_time=job.status.start_time or second_time(now),
        completed_indexes=write_indexes(counts.indexes),
        uncounted_terminated_pods=counts.uncounted,
        conditions=conditions,
    )


def _tracked(pods: Sequence[WorkPod]) -> list[WorkPod]:
    return [pod for pod in pods if pod.tracked]


def _condition(kind: str, reason: str, message: str, *, now: float, status: str = "True") -> PodCondition:
    return PodCondition(type=kind, status=status, reason=reason, message=message, last_transition_time=second_time(now))


def _with(conditions: tuple[PodCondition, ...], new: PodCondition) -> tuple[PodCondition, ...]:
    return (*(one for one in conditions if one.type != new.type), new)
