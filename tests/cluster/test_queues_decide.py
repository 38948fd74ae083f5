"""The scenario tables against the real centre, kube-scheduler and API server; cards are played."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from support.queue_scenarios import SCENARIOS, Pods, Scenario


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[ClusterHarness]:  # noqa: ARG001 - it may skip
    """A control plane whose nodes are played."""
    with ClusterHarness(Options(nodes=())) as running:
        yield running


@pytest.fixture(scope="module")
def centre(cluster: ClusterHarness) -> Iterator[PlayedCentre]:
    """Four cards on one node."""
    played = PlayedCentre(cluster, gpus=[4])
    played.start()
    yield played
    played.stop()


def home(name: str) -> Json:
    """A namespace that is at home in the queue of its name."""
    meta = {"name": f"{name}-1", "labels": {NAMES.queue: name}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def submit(cluster: ClusterHarness, pods: Pods, made: dict[str, int]) -> None:
    """Create them, one after the other."""
    for _ in range(pods.count):
        wanted = asking(f"p{made[pods.queue]}", f"{pods.queue}-1", {"compute": str(pods.compute), "memory": "1000"})
        made[pods.queue] += 1
        meta = wanted["metadata"]
        meta["labels"] = {**meta.get("labels", {}), **({NAMES.group: pods.gang} if pods.gang else {})}
        meta["annotations"] = {
            **meta.get("annotations", {}),
            **{NAMES.of(short): text for short, text in pods.notes.items()},
        }
        cluster.create_pod(wanted)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_it_is_as_the_table_says(cluster: ClusterHarness, centre: PlayedCentre, scenario: Scenario) -> None:
    """By the grants that pods hold, and by the gates that stand."""
    leaves = scenario.queues.keys() - {spec.get("parent") for spec in scenario.queues.values()}
    queues = [queue(name, **spec) for name, spec in scenario.queues.items()]
    made = dict.fromkeys(leaves, 0)
    with centre.applied([*queues, *(home(name) for name in sorted(leaves))]):
        for step in scenario.steps:
            for pods in step.submit:
                submit(cluster, pods, made)
            for name, count in step.end.items():
                for pod in centre.holding(f"{name}-1")[:count]:
                    centre.end(pod)
            centre.settled({f"{name}-1": held for name, held in step.held.items()})
            centre.lined_up({f"{name}-1": count for name, count in step.waiting.items()})
