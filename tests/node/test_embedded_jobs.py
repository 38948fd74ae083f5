"""Jobs over the whole of one machine: the real centre, the scheduling loop, controllers, and simulated nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.endpoints import short_folder
from support.http_api import Json
from support.up_process import NAMES, PODS, Up, eventually, running_up

JOBS = "/apis/batch/v1/namespaces/default/jobs"
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """Two simulated nodes of two GPUs, and none that runs commands."""
    with short_folder() as root, running_up(root / "home", "--full", "0", gpus="2x2xA100-80GB") as up:
        yield up
        assert up.stop() == 0


def job(name: str, *, compute: str, duration: str = "", **spec: object) -> Json:
    """A job whose pods are played, and ask for a slice each."""
    limits = {NAMES.compute: compute, NAMES.memory: "1000"}
    container = {"name": "main", "image": "none:1", "resources": {"limits": limits}}
    annotations = {"sim.aliquot.dev/duration": duration} if duration else {"sim.aliquot.dev/use": "50"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def pods_of(up: Up, name: str) -> list[Json]:
    """The pods of a job."""
    items: list[Json] = up.api.get(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}").ok()["items"]
    return items


def test_a_job_of_many_parts_runs_through(up: Up) -> None:
    """Six parts on four GPUs, each a whole one: all get their turn, run once, and are told in one run."""
    parts = job("parts", compute="100", duration="0.2", completions=6, parallelism=6, completionMode="Indexed")
    up.api.post(JOBS, parts).ok()
    with up.api.watch(JOBS, fieldSelector="metadata.name=parts") as watch:
        while not (status := watch.next()["object"].get("status", {})).get("completionTime"):
            assert not status.get("failed")
    assert (status["succeeded"], status["completedIndexes"], status["active"]) == (6, "0-5", 0)
    assert {pod["metadata"]["annotations"][INDEX] for pod in pods_of(up, "parts")} == set("012345")


def test_a_job_that_is_deleted_takes_its_pods_and_frees_their_slices(up: Up) -> None:
    """What held all GPUs is gone with its job, and who waited behind it runs."""
    up.api.post(JOBS, job("holder", compute="100", completions=4, parallelism=4)).ok()
    with up.api.watch(JOBS, fieldSelector="metadata.name=holder") as watch:
        while watch.next()["object"].get("status", {}).get("ready") != 4:
            pass
    up.api.post(JOBS, job("waiter", compute="100", duration="0.1")).ok()
    up.api.delete(f"{JOBS}/holder").ok()
    with up.api.watch(JOBS, fieldSelector="metadata.name=waiter") as watch:
        while watch.next()["object"].get("status", {}).get("succeeded") != 1:
            pass
    # One card was enough for the waiter: the other pods may have a little of their grace left.
    eventually(lambda: pods_of(up, "holder") == [])
