"""Cron schedules against a plain reading of them minute by minute, and cron jobs against the embedded API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from aliquot_core.instants import seconds_of
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import InvalidError
from aliquot_kube.patches import merge_patch
from aliquot_kube.transport import Question
from aliquot_standalone.apiserver.cron_schedules import ScheduleError, latest_within, next_after, read_schedule
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.controllers.cron_jobs import CronJobController
from aliquot_standalone.controllers.objects import CRON_JOBS, JOBS
from support.clocks import VirtualClock
from support.controllers import quiet_events
from support.embedded_api import make_frontend

Json = dict[str, Any]
BERLIN = ZoneInfo("Europe/Berlin")
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
# Days around both changes of the clocks, a leap day, and a new year.
STARTS = ["2026-03-28T00:30", "2026-10-24T12:00", "2028-02-28T23:00", "2026-12-31T20:00"]


def at(text: str) -> float:
    """Read an instant."""
    found = seconds_of(text)
    assert found is not None
    return found


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> tuple[str, frozenset[int]]:
    """One field, and what it means."""
    kind = draw(st.sampled_from(["any", "some", "span", "steps"]))
    first = draw(st.integers(least, most))
    last = draw(st.integers(first, most))
    step = draw(st.integers(1, 7))
    if kind == "any":
        return "*", frozenset(range(least, most + 1))
    if kind == "some":
        return f"{first},{last}", frozenset({first, last})
    if kind == "span":
        return f"{first}-{last}", frozenset(range(first, last + 1))
    return f"{first}/{step}", frozenset(range(first, most + 1, step))


SCHEDULES = st.tuples(*(fields(least, most) for least, most in RANGES))


def due(meaning: list[frozenset[int]], text: list[str], moment: datetime) -> bool:
    """Say whether a minute is meant, straight from the words of the rule."""
    minute, hour, day, month, weekday = (part in meant for part, meant in zip(_parts(moment), meaning, strict=True))
    either = text[2] != "*" and text[4] != "*"
    return minute and hour and month and (day or weekday if either else day and weekday)


def _parts(moment: datetime) -> tuple[int, ...]:
    return moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7


@given(SCHEDULES, st.sampled_from(STARTS))
@settings(deadline=None, max_examples=25)
def test_a_schedule_is_due_when_its_words_say_so(schedule: tuple[tuple[str, frozenset[int]], ...], start: str) -> None:
    """Over two days, minute by minute, in a zone whose clocks change: the same times, forth and back."""
    text, meaning = [one for one, _ in schedule], [meant for _, meant in schedule]
    read = read_schedule(" ".join(text))
    begin = at(f"{start}+00:00")
    wanted: list[float] = []
    seen: set[datetime] = set()
    for minute in range(1, 2 * 24 * 60):
        moment = datetime.fromtimestamp(begin, UTC) + timedelta(minutes=minute)
        local = moment.astimezone(BERLIN)
        # What comes twice counts the first time.
        if due(meaning, text, local) and not local.fold and local.replace(tzinfo=None) not in seen:
            seen.add(local.replace(tzinfo=None))
            wanted.append(moment.timestamp())
    found: list[float] = []
    now: float | None = begin
    while now is not None and len(found) < len(wanted):
        now = next_after(read, now, zone=BERLIN)
        found += [] if now is None else [now]
    assert found == wanted
    last = latest_within(read, after=begin, until=begin + 2 * 86_400 - 60, zone=BERLIN)
    assert last == (wanted[-1] if wanted else None)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        # The hour that is left out has no half past two, the one that comes twice has one.
        ("2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
        ("2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        ("2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
    ],
)
def test_clocks_that_change_leave_out_and_repeat_nothing(begin: str, end: str) -> None:
    """At half past two in Berlin, about both changes of the clocks."""
    assert next_after(read_schedule("30 2 * * *"), at(begin), zone=BERLIN) == at(end)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "*/0 * * * *",
        "5-1 * * * *",
        "x * * * *",
        "@every 5m",
        "-1 * * * *",
        "1,,2 * * * *",
    ],
)
def test_what_is_no_schedule(text: str) -> None:
    """A field that means nothing is refused."""
    with pytest.raises(ScheduleError):
        read_schedule(text)


def test_names_of_months_and_days_are_read() -> None:
    """As cron has them, in any case."""
    assert read_schedule("0 0 * JAN-mar Mon") == read_schedule("0 0 * 1-3 1")


def test_a_day_that_never_comes_is_never_due() -> None:
    """The 31st of February is not waited for without end."""
    assert next_after(read_schedule("0 0 31 2 *"), at("2026-01-01T00:00:00Z"), zone=ZoneInfo("UTC")) is None


# --- the controller --------------------------------------------------------------------------------------------------
@dataclass
class Stage:
    """An API server and a controller."""

    clock: VirtualClock
    transport: DirectTransport
    client: KubeClient

    async def cron(self, name: str, *, schedule: str = "*/10 * * * *", **spec: Any) -> None:
        """Create a cron job."""
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none:1"}]}}
        job = {"metadata": {"labels": {"team": "a"}}, "spec": {"template": template}}
        body = {"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": job, **spec}}
        path = CRON_JOBS.collection("default")
        await self.transport.request(
            Question(method="POST", path=path, body=msgspec.json.encode(body), content_type="application/json")
        )
        await self.clock.advance(0.3)

    async def jobs(self) -> list[Json]:
        """Give the jobs, oldest first."""
        await self.clock.advance(0.3)
        answer = await self.transport.request(Question(method="GET", path=JOBS.collection("default")))
        items: list[Json] = msgspec.json.decode(answer.body)["items"]
        return sorted(items, key=lambda one: str(one["metadata"]["name"]))

    async def finish(self, job: Json, kind: str = "Complete") -> None:
        """Let a job end."""
        end = {"startTime": job["metadata"]["creationTimestamp"], "conditions": [{"type": kind, "status": "True"}]}
        if kind == "Complete":
            end["completionTime"] = job["metadata"]["creationTimestamp"]
        name = job["metadata"]["name"]
        patch = merge_patch({"status": end})
        await self.client.patch(JOBS, name=name, namespace="default", patch=patch, subresource="status")
        await self.clock.advance(0.3)

    async def status(self, name: str) -> Json:
        """Give what came of a cron job."""
        path = CRON_JOBS.path(name=name, namespace="default")
        answer = await self.transport.request(Question(method="GET", path=path))
        return dict(msgspec.json.decode(answer.body).get("status", {}))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A controller that runs, at seven minutes past ten."""
    clock = VirtualClock(start=at("2026-06-01T10:07:00Z"))
    transport = DirectTransport(frontend=make_frontend(), clock=clock)
    client = KubeClient(transport=transport)
    controller = CronJobController(
        transport=transport, clock=clock, random=lambda: 0.5, events=quiet_events(client=client, clock=clock)
    )
    running = asyncio.create_task(controller.run())
    await clock.advance(0.1)
    yield Stage(clock=clock, transport=transport, client=client)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_job_is_made_when_it_is_due_and_once(stage: Stage) -> None:
    """At each tenth minute one job, named for the minute, owned by the cron job, with the template's labels."""
    await stage.cron("tick")
    assert await stage.jobs() == []
    await stage.clock.advance(180.0)
    (job,) = await stage.jobs()
    minute = int(at("2026-06-01T10:10:00Z")) // 60
    assert job["metadata"]["name"] == f"tick-{minute}"
    assert job["metadata"]["labels"] == {"team": "a"}
    assert [(one["kind"], one["name"], one["controller"]) for one in job["metadata"]["ownerReferences"]] == [
        ("CronJob", "tick", True)
    ]
    status = await stage.status("tick")
    assert status["lastScheduleTime"] == "2026-06-01T10:10:00Z"
    assert [one["name"] for one in status["active"]] == [f"tick-{minute}"]
    await stage.clock.advance(600.0)
    assert len(await stage.jobs()) == 2


async def test_no_job_begins_beside_another_where_that_is_forbidden(stage: Stage) -> None:
    """The missed time is made up for once the job at work has ended."""
    await stage.cron("alone", concurrencyPolicy="Forbid")
    await stage.clock.advance(180.0 + 1200.0)
    (job,) = await stage.jobs()
    await stage.finish(job)
    assert len(await stage.jobs()) == 2
    assert (await stage.status("alone"))["lastScheduleTime"] == "2026-06-01T10:30:00Z"


async def test_a_new_job_takes_the_place_of_the_old_where_that_is_wished(stage: Stage) -> None:
    """With Replace the one at work is deleted."""
    await stage.cron("instead", concurrencyPolicy="Replace")
    await stage.clock.advance(180.0)
    (first,) = await stage.jobs()
    await stage.clock.advance(600.0)
    (second,) = await stage.jobs()
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_a_suspended_cron_job_makes_nothing_and_makes_up_for_the_last_time_only(stage: Stage) -> None:
    """After an hour's pause one job is made, not six."""
    await stage.cron("paused", suspend=True)
    await stage.clock.advance(3600.0)
    assert await stage.jobs() == []
    patch = merge_patch({"spec": {"suspend": False}})
    await stage.client.patch(CRON_JOBS, name="paused", namespace="default", patch=patch)
    assert len(await stage.jobs()) == 1


async def test_what_is_too_late_is_not_made_up_for(stage: Stage) -> None:
    """Beyond its deadline a missed time is let go."""
    await stage.cron("late", suspend=True, startingDeadlineSeconds=60)
    await stage.clock.advance(300.0)
    patch = merge_patch({"spec": {"suspend": False}})
    await stage.client.patch(CRON_JOBS, name="late", namespace="default", patch=patch)
    assert await stage.jobs() == []


async def test_only_so_many_ended_jobs_are_kept(stage: Stage) -> None:
    """Two that succeeded and one that failed, the newest of each."""
    await stage.cron("kept", successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
    await stage.clock.advance(180.0)
    for kind in ("Complete", "Failed", "Complete", "Failed", "Complete"):
        await stage.finish((await stage.jobs())[-1], kind)
        await stage.clock.advance(600.0)
    left = [one["status"].get("conditions", [{"type": "none"}])[0]["type"] for one in await stage.jobs()]
    assert left == ["Complete", "Failed", "Complete", "none"]
    assert (await stage.status("kept"))["lastSuccessfulTime"]


async def test_a_schedule_is_of_its_zone(stage: Stage) -> None:
    """Noon in Berlin is ten o'clock UTC in summer: not due any more today."""
    await stage.cron("noon", schedule="15 12 * * *", timeZone="Europe/Berlin")
    await stage.clock.advance(480.0)
    (job,) = await stage.jobs()
    note = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert note.startswith("2026-06-01T10:15:00Z")


@pytest.mark.parametrize("spec", [{"schedule": "0 25 * * *"}, {"timeZone": "Mars/Olympus"}])
async def test_what_can_t_be_followed_is_refused(stage: Stage, spec: Json) -> None:
    """A schedule or zone that nobody could follow is told when it is written."""
    with pytest.raises(InvalidError):
        await stage.cron("odd", **spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"podFailurePolicy": {"rules": []}},
        {"successPolicy": {"rules": []}},
        {"backoffLimitPerIndex": 1},
        {"managedBy": "example.org/other"},
        {"podReplacementPolicy": "Failed"},
        {"completionMode": "Indexed"},
        {"completionMode": "Sideways", "completions": 1},
    ],
)
async def test_what_only_a_cluster_does_is_refused_and_not_passed_over(stage: Stage, spec: Json) -> None:
    """A job that asks more than is done here is told so when it is created."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none:1"}]}}
    # Parallelism of two: else the number of completions would be filled in.
    body = {"metadata": {"name": "odd"}, "spec": {"template": template, "parallelism": 2, **spec}}
    question = Question(
        method="POST",
        path=JOBS.collection("default"),
        body=msgspec.json.encode(body),
        content_type="application/json",
    )
    with pytest.raises(InvalidError):
        await stage.transport.request(question)
