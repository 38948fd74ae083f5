"""Jobs and cron jobs as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .spans import instant, span

if TYPE_CHECKING:
    from collections.abc import Callable

    from .store import Json

    Age = Callable[[object, float], str]


def job_row(obj: Json, now: float, *, age: Age) -> list[Any]:
    """Give name, state, completions, duration and age of a job."""
    spec, status = obj["spec"], obj.get("status", {})
    wanted = spec.get("completions") or f"1 of {spec.get('parallelism', 1)}"
    begun, ended = instant(status.get("startTime", "")), instant(status.get("completionTime", ""))
    duration = "" if begun is None else span((now if ended is None else ended) - begun)
    done = f"{status.get('succeeded', 0)}/{wanted}"
    return [obj["metadata"]["name"], _state(obj), done, duration, age(obj["metadata"].get("creationTimestamp"), now)]


def _state(obj: Json) -> str:
    true = {one.get("type") for one in obj.get("status", {}).get("conditions", []) if one.get("status") == "True"}
    for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if kind in true:
            return kind
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else "Running"


def cron_job_row(obj: Json, now: float, *, age: Age) -> list[Any]:
    """Give name, schedule, zone, whether it rests, how many run, when it last began, and age of a cron job."""
    spec, status = obj["spec"], obj.get("status", {})
    last = status.get("lastScheduleTime")
    return [
        obj["metadata"]["name"],
        spec.get("schedule", ""),
        spec.get("timeZone") or "<none>",
        "True" if spec.get("suspend") else "False",
        len(status.get("active", [])),
        age(last, now) if last else "<none>",
        age(obj["metadata"].get("creationTimestamp"), now),
    ]
