"""Jobs and cron jobs as objects: their defaults, and what can't be run. Who runs them is a controller's business."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from .cron_schedules import ScheduleError, read_schedule
from .failures import Cause, forbidden_field, required, unsupported, wrong
from .pod_shapes import PodSpec
from .rules import Rules
from .shapes import Condition, Metadata, Shape
from .store import Json

Whole = Annotated[int, msgspec.Meta(ge=0)]
# What only a cluster's controllers do: passed over in silence it would do something else than was asked.
_BEYOND = (
    "podFailurePolicy",
    "successPolicy",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "managedBy",
    "manualSelector",
)


class _Template(Shape, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class _JobSpec(Shape, frozen=True):
    template: _Template = _Template()
    parallelism: Whole = 1
    completions: Whole | None = None
    backoff_limit: Whole = 6
    active_deadline_seconds: Whole | None = None
    ttl_seconds_after_finished: Whole | None = None
    suspend: bool = False


class _JobStatus(Shape, frozen=True):
    active: Whole = 0
    succeeded: Whole = 0
    failed: Whole = 0
    start_time: str = ""
    completion_time: str = ""
    conditions: tuple[Condition, ...] = ()


class _Job(Shape, frozen=True):
    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _JobTemplate(Shape, frozen=True):
    metadata: Metadata = Metadata()
    spec: _JobSpec = _JobSpec()


class _CronJobSpec(Shape, frozen=True):
    schedule: str = ""
    job_template: _JobTemplate = _JobTemplate()
    concurrency_policy: str = "Allow"
    suspend: bool = False
    time_zone: str = ""
    starting_deadline_seconds: Whole | None = None


class _CronJobStatus(Shape, frozen=True):
    active: tuple[dict[str, str], ...] = ()
    last_schedule_time: str = ""
    last_successful_time: str = ""


class _CronJob(Shape, frozen=True):
    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: _CronJobSpec = _CronJobSpec()
    status: _CronJobStatus = _CronJobStatus()


class JobRules(Rules):
    """Jobs run one pod to its end, unless it is said otherwise."""

    shape = _Job

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Fill defaults; nothing has run yet."""
        _fill(obj.setdefault("spec", {}))
        # Once it has an identity: by this clients find its pods.
        if uid := obj["metadata"].get("uid"):
            obj["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        obj["status"] = {}

    def prepare_update(self, new: Json, old: Json) -> None:
        """Fill what the writer left out."""
        super().prepare_update(new, old)
        _fill(new.setdefault("spec", {}))
        if "selector" in old["spec"]:
            new["spec"].setdefault("selector", old["spec"]["selector"])

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and the template."""
        return super().causes(obj) + _job_causes(obj["spec"], at="spec")

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Refuse another template or number of completions: pods of the old one may run."""
        return super().update_causes(new, old) + [
            wrong(f"spec.{part}", new["spec"].get(part), "field is immutable")
            for part in ("template", "completions")
            if new["spec"].get(part) != old["spec"].get(part)
        ]


def _fill(spec: Json) -> None:
    spec.setdefault("parallelism", 1)
    if spec["parallelism"] == 1:
        spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)


def _job_causes(spec: Json, *, at: str) -> list[Cause]:
    pod = spec.get("template", {}).get("spec", {})
    found = [] if pod.get("containers") else [required(f"{at}.template.spec.containers")]
    if pod.get("restartPolicy", "") not in {"Never", "OnFailure"}:
        where = f"{at}.template.spec.restartPolicy"
        found.append(unsupported(where, pod.get("restartPolicy", ""), ("OnFailure", "Never")))
    if spec.get("completionMode", "NonIndexed") not in {"NonIndexed", "Indexed"}:
        found.append(unsupported(f"{at}.completionMode", spec["completionMode"], ("Indexed", "NonIndexed")))
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        found.append(required(f"{at}.completions", "each part of an indexed job has its number"))
    beyond = [one for one in _BEYOND if spec.get(one) not in (None, False)] + _replacement(spec)
    return found + [forbidden_field(f"{at}.{one}", "this needs a cluster") for one in beyond]


def _replacement(spec: Json) -> list[str]:
    return ["podReplacementPolicy"] if spec.get("podReplacementPolicy", "") not in {"", "TerminatingOrFailed"} else []


class CronJobRules(Rules):
    """Cron jobs make jobs by the clock."""

    shape = _CronJob

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Fill defaults; nothing has run yet."""
        _fill_cron(obj.setdefault("spec", {}))
        obj["status"] = {}

    def prepare_update(self, new: Json, old: Json) -> None:
        """Fill what the writer left out."""
        super().prepare_update(new, old)
        _fill_cron(new.setdefault("spec", {}))

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata, schedule and template."""
        found, spec = super().causes(obj), obj["spec"]
        try:
            read_schedule(spec.get("schedule", ""))
        except ScheduleError as error:
            found.append(wrong("spec.schedule", spec.get("schedule", ""), str(error)))
        if not _is_zone(spec.get("timeZone", "UTC")):
            found.append(wrong("spec.timeZone", spec["timeZone"], "no such zone is known here"))
        if spec["concurrencyPolicy"] not in {"Allow", "Forbid", "Replace"}:
            policies = ("Allow", "Forbid", "Replace")
            found.append(unsupported("spec.concurrencyPolicy", spec["concurrencyPolicy"], policies))
        return found + _job_causes(spec.get("jobTemplate", {}).get("spec", {}), at="spec.jobTemplate.spec")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return name != "Local"


def _fill_cron(spec: Json) -> None:
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
