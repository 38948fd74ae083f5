"""Jobs against the embedded API server, with pods that a test lets succeed or fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ConflictError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import PODS
from aliquot_kube.transport import Question
from aliquot_standalone.apiserver.direct import DirectTransport, NoFaults
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.controllers.jobs import JobController
from aliquot_standalone.controllers.objects import JOBS
from support.clocks import VirtualClock
from support.controllers import quiet_events
from support.embedded_api import make_frontend

Json = dict[str, Any]


@dataclass
class Stage:
    """An API server, a controller, and a test that plays the kubelet."""

    clock: VirtualClock
    frontend: Frontend
    transport: DirectTransport
    client: KubeClient
    running: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Start the controller."""
        events = quiet_events(client=self.client, clock=self.clock)
        controller = JobController(transport=self.transport, clock=self.clock, random=lambda: 0.5, events=events)
        self.running.append(asyncio.create_task(controller.run()))

    async def stop(self) -> None:
        """End it."""
        task = self.running.pop()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def job(self, name: str, *, policy: str = "Never", **spec: Any) -> None:
        """Create a job."""
        template = {"spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "none:1"}]}}
        body = {"metadata": {"name": name}, "spec": {"template": template, **spec}}
        path = JOBS.collection("default")
        await self.transport.request(
            Question(method="POST", path=path, body=msgspec.json.encode(body), content_type="application/json")
        )
        await self.clock.advance(0.3)

    async def pods(self, *, alive: bool = True) -> list[Json]:
        """Give the pods, those that have not ended if so wished."""
        answer = await self.transport.request(Question(method="GET", path=PODS.collection("default")))
        items: list[Json] = msgspec.json.decode(answer.body)["items"]
        return [one for one in items if not alive or one["status"]["phase"] not in {"Succeeded", "Failed"}]

    async def end(self, pod: Json, phase: str, **more: Any) -> None:
        """Let a pod end."""
        await self.tell(pod, phase=phase, **more)

    async def tell(self, pod: Json, **status: Any) -> None:
        """Write a pod's status, and let the controller act."""
        name = pod["metadata"]["name"]
        patch = merge_patch({"status": status})
        await self.client.patch(PODS, name=name, namespace="default", patch=patch, subresource="status")
        await self.clock.advance(0.5)

    async def seen(self, name: str) -> Json:
        """Give a job, whole."""
        answer = await self.transport.request(Question(method="GET", path=JOBS.path(name=name, namespace="default")))
        return dict(msgspec.json.decode(answer.body))

    async def conditions(self, name: str) -> dict[str, str]:
        """Give what holds of a job, with the reasons."""
        found = (await self.seen(name))["status"].get("conditions", [])
        return {one["type"]: one["reason"] for one in found if one["status"] == "True"}

    async def patch(self, name: str, **spec: Any) -> None:
        """Change a job."""
        await self.client.patch(JOBS, name=name, namespace="default", patch=merge_patch({"spec": spec}))
        await self.clock.advance(0.5)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A controller that runs."""
    clock = VirtualClock(start=1_700_000_000.0)
    frontend = make_frontend()
    transport = DirectTransport(frontend=frontend, clock=clock)
    stage = Stage(clock=clock, frontend=frontend, transport=transport, client=KubeClient(transport=transport))
    stage.start()
    await clock.advance(0.1)
    yield stage
    await stage.stop()


async def test_one_pod_that_succeeds_completes_a_job(stage: Stage) -> None:
    """The pod bears owner and labels as Kubernetes names them; the job counts it and has ended."""
    await stage.job("one")
    (pod,) = await stage.pods()
    job = await stage.seen("one")
    uid = job["metadata"]["uid"]
    assert pod["metadata"]["name"].startswith("one-")
    assert pod["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "one",
        "controller-uid": uid,
        "job-name": "one",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "one",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert job["status"]["active"] == 1
    await stage.end(pod, "Succeeded")
    job = await stage.seen("one")
    assert (job["status"]["succeeded"], job["status"]["active"]) == (1, 0)
    assert await stage.conditions("one") == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert job["status"]["completionTime"]
    (pod,) = await stage.pods(alive=False)
    assert "finalizers" not in pod["metadata"]


async def test_only_as_many_pods_at_once_as_may_be(stage: Stage) -> None:
    """Five completions two at a time: never more than two pods, never more than are missing."""
    await stage.job("many", completions=5, parallelism=2)
    made: set[str] = set()
    for left in (5, 4, 3, 2, 1):
        alive = await stage.pods()
        made |= {pod["metadata"]["name"] for pod in alive}
        assert len(alive) == min(2, left)
        await stage.end(alive[0], "Succeeded")
    assert len(made) == 5
    assert "Complete" in await stage.conditions("many")


async def test_failures_are_tried_again_ever_later_and_then_no_more(stage: Stage) -> None:
    """Pauses of 10 and 20 s; the third failure is one too many, and what still runs is deleted."""
    await stage.job("unlucky", backoffLimit=2, parallelism=2, completions=2)
    steady, first = await stage.pods()
    await stage.end(first, "Failed")
    assert len(await stage.pods()) == 1
    await stage.clock.advance(10.0)
    second = next(pod for pod in await stage.pods() if pod["metadata"]["name"] != steady["metadata"]["name"])
    await stage.end(second, "Failed")
    await stage.clock.advance(15.0)
    assert len(await stage.pods()) == 1
    await stage.clock.advance(6.0)
    third = next(pod for pod in await stage.pods() if pod["metadata"]["name"] != steady["metadata"]["name"])
    await stage.end(third, "Failed")
    assert await stage.conditions("unlucky") == {
        "FailureTarget": "BackoffLimitExceeded",
        "Failed": "BackoffLimitExceeded",
    }
    assert await stage.pods() == []
    job = await stage.seen("unlucky")
    assert job["status"]["failed"] == 3
    assert "completionTime" not in job["status"]


async def test_restarts_count_where_pods_restart_their_containers(stage: Stage) -> None:
    """With OnFailure the restarts of containers are what the limit is about."""
    await stage.job("again", policy="OnFailure", backoffLimit=2)
    (pod,) = await stage.pods()
    statuses = [{"name": "main", "restartCount": 1, "state": {}, "ready": True, "image": "", "imageID": ""}]
    await stage.tell(pod, phase="Running", containerStatuses=statuses)
    assert await stage.conditions("again") == {}
    await stage.tell(pod, phase="Running", containerStatuses=[{**statuses[0], "restartCount": 2}])
    assert "Failed" in await stage.conditions("again")


async def test_a_job_that_takes_too_long_fails(stage: Stage) -> None:
    """Its deadline counts from its start, and its pods are deleted."""
    await stage.job("slow", activeDeadlineSeconds=30)
    await stage.clock.advance(28.0)
    assert len(await stage.pods()) == 1
    await stage.clock.advance(3.0)
    assert (await stage.conditions("slow"))["Failed"] == "DeadlineExceeded"
    assert await stage.pods() == []


async def test_a_job_goes_when_its_time_after_the_end_is_over(stage: Stage) -> None:
    """It is deleted so many seconds after it ended."""
    await stage.job("short", ttlSecondsAfterFinished=20)
    (pod,) = await stage.pods()
    await stage.end(pod, "Succeeded")
    await stage.clock.advance(18.0)
    assert "Complete" in await stage.conditions("short")
    await stage.clock.advance(3.0)
    answer = await stage.transport.request(Question(method="GET", path=JOBS.collection("default")))
    assert msgspec.json.decode(answer.body)["items"] == []


async def test_a_suspended_job_has_no_pods_and_its_time_stands_still(stage: Stage) -> None:
    """Suspended it lets its pods go without counting them, resumed it begins anew."""
    await stage.job("paused", suspend=True, activeDeadlineSeconds=30)
    assert await stage.pods() == []
    assert await stage.conditions("paused") == {"Suspended": "JobSuspended"}
    await stage.clock.advance(60.0)
    await stage.patch("paused", suspend=False)
    assert len(await stage.pods()) == 1
    assert await stage.conditions("paused") == {}
    await stage.patch("paused", suspend=True)
    assert await stage.pods() == []
    assert (await stage.seen("paused"))["status"]["failed"] == 0


async def test_parallelism_may_change_while_a_job_runs(stage: Stage) -> None:
    """More are made, or those that are too many deleted, which is no failure."""
    await stage.job("elastic", completions=10, parallelism=2)
    await stage.patch("elastic", parallelism=4)
    assert len(await stage.pods()) == 4
    await stage.patch("elastic", parallelism=1)
    assert len(await stage.pods()) == 1
    job = await stage.seen("elastic")
    assert (job["status"]["active"], job["status"]["failed"]) == (1, 0)


async def test_each_pod_of_an_indexed_job_has_a_part_of_its_own(stage: Stage) -> None:
    """Indexes are given once each, a failed one again, and finished ones are told in runs."""
    await stage.job("parts", completions=4, parallelism=4, completionMode="Indexed")
    pods = {
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: pod for pod in await stage.pods()
    }
    assert sorted(pods) == ["0", "1", "2", "3"]
    assert pods["2"]["metadata"]["name"].startswith("parts-2-")
    assert pods["2"]["spec"]["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "2"}]
    for index in ("0", "2", "3"):
        await stage.end(pods[index], "Succeeded")
    await stage.end(pods["1"], "Failed")
    assert (await stage.seen("parts"))["status"]["completedIndexes"] == "0,2-3"
    await stage.clock.advance(11.0)
    (again,) = await stage.pods()
    assert again["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1"
    await stage.end(again, "Succeeded")
    job = await stage.seen("parts")
    assert (job["status"]["completedIndexes"], job["status"]["succeeded"], job["status"]["failed"]) == ("0-3", 4, 1)
    assert "Complete" in await stage.conditions("parts")


async def test_without_a_number_of_completions_the_first_success_ends_it(stage: Stage) -> None:
    """No pod is begun any more, and the job has ended when the others have."""
    await stage.job("workers", parallelism=3)
    pods = await stage.pods()
    assert len(pods) == 3
    await stage.end(pods[0], "Succeeded")
    assert len(await stage.pods()) == 2
    assert await stage.conditions("workers") == {}
    for pod in pods[1:]:
        await stage.end(pod, "Succeeded")
    assert "Complete" in await stage.conditions("workers")
    assert (await stage.seen("workers"))["status"]["succeeded"] == 3


async def test_every_pod_is_counted_once_over_a_restart_at_any_moment(stage: Stage) -> None:
    """Pods that end, and are deleted, while nobody counts are counted by the next controller, once."""
    await stage.job("counted", completions=6, parallelism=3)
    for _ in range(2):
        await stage.stop()
        for pod in await stage.pods():
            await stage.end(pod, "Succeeded")
            await stage.client.delete(PODS, name=pod["metadata"]["name"], namespace="default")
        stage.start()
        await stage.clock.advance(2.0)
    job = await stage.seen("counted")
    assert job["status"]["succeeded"] == 6
    assert "Complete" in await stage.conditions("counted")


async def test_a_pod_that_is_deleted_counts_as_failed_and_is_made_again(stage: Stage) -> None:
    """Somebody deletes a pod at work: the job has another one made."""
    await stage.job("robbed")
    (pod,) = await stage.pods()
    await stage.client.delete(PODS, name=pod["metadata"]["name"], namespace="default", grace_seconds=0)
    await stage.clock.advance(1.0)
    (again,) = await stage.pods()
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    assert (await stage.seen("robbed"))["status"]["failed"] == 1


class OneConflict(NoFaults):
    """A wire on which the first pod that is written was written by somebody else a moment ago."""

    def __init__(self) -> None:
        self.conflicts = 0

    async def on_question(self, question: Question) -> None:
        """Refuse once."""
        if question.method == "PATCH" and "/pods/" in question.path and not self.conflicts:
            self.conflicts += 1
            raise ConflictError("the object has been modified", where=question.where)


async def test_all_pods_of_a_job_that_is_gone_are_let_go(stage: Stage) -> None:
    """Also those after one that somebody else wrote meanwhile: nobody would tell of them any more."""
    await stage.job("gone", parallelism=3, completions=3)
    await stage.stop()
    direct, faults = stage.transport, OneConflict()
    stage.transport = DirectTransport(frontend=stage.frontend, clock=stage.clock, faults=faults)
    stage.start()
    stage.transport = direct
    await stage.clock.advance(0.5)
    await stage.client.delete(JOBS, name="gone", namespace="default")
    await stage.clock.advance(5.0)
    assert (faults.conflicts, await stage.pods()) == (1, [])


class LateList(NoFaults):
    """A wire on which the first list of these takes its time."""

    def __init__(self, what: str, *, clock: VirtualClock) -> None:
        self._what = what
        self._clock = clock

    async def on_question(self, question: Question) -> None:
        """Hold the list up."""
        if question.method == "GET" and question.path.endswith(f"/{self._what}") and "watch" not in question.query:
            await self._clock.sleep(3.0)


@pytest.mark.parametrize("late", ["pods", "jobs"])
async def test_a_controller_that_starts_makes_no_pod_before_it_knows_all(stage: Stage, late: str) -> None:
    """A job that has its pods gets no others, whichever of them the controller has not heard of yet."""
    await stage.job("steady", parallelism=2, completions=2)
    await stage.stop()
    direct, faults = stage.transport, LateList(late, clock=stage.clock)
    stage.transport = DirectTransport(frontend=stage.frontend, clock=stage.clock, faults=faults)
    stage.start()
    stage.transport = direct
    for _ in range(5):
        await stage.clock.advance(1.0)
        assert len(await stage.pods()) == 2


class LateNews(NoFaults):
    """A wire on which a watch of pods lags behind by seconds."""

    def __init__(self, *, clock: VirtualClock) -> None:
        self._clock = clock

    async def on_line(self, question: Question, line: bytes) -> Sequence[bytes]:
        """Hold each line up."""
        if question.path.endswith("/pods"):
            await self._clock.sleep(3.0)
        return (line,)


async def test_a_watch_that_lags_makes_no_pod_twice(stage: Stage) -> None:
    """What the controller has made it knows, before it hears of it."""
    await stage.stop()
    stage.transport = DirectTransport(frontend=stage.frontend, clock=stage.clock, faults=LateNews(clock=stage.clock))
    stage.start()
    await stage.clock.advance(0.1)
    await stage.job("once", parallelism=2, completions=2)
    await stage.clock.advance(2.0)
    await stage.patch("once", activeDeadlineSeconds=600)
    assert len(await stage.pods()) == 2
    await stage.clock.advance(20.0)
    assert len(await stage.pods()) == 2


async def test_pods_that_can_t_be_made_are_tried_again(stage: Stage) -> None:
    """A quota that is full holds a job up, and does not end it."""
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    path = "/api/v1/namespaces/default/resourcequotas"
    body = msgspec.json.encode(quota)
    await stage.transport.request(Question(method="POST", path=path, body=body, content_type="application/json"))
    await stage.job("wide", completions=2, parallelism=2)
    (pod,) = await stage.pods()
    await stage.clock.advance(5.0)
    assert len(await stage.pods()) == 1
    await stage.end(pod, "Succeeded")
    await stage.clock.advance(30.0)
    (other,) = await stage.pods()
    assert other["metadata"]["uid"] != pod["metadata"]["uid"]
