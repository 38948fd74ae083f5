"""The scenario tables against the real centre, kube-scheduler and API server; cards are played."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness, Options
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import QUEUES, queue
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


def told(centre: PlayedCentre, pod: str) -> set[tuple[str, str]]:
    """The Events of a pod that are the centre's: reason, and what is done about it."""
    events = centre.api.items("/apis/events.k8s.io/v1/namespaces/one/events")
    ours = [event for event in events if event.get("reportingController") == NAMES.of("scheduler")]
    return {(event["reason"], event["action"]) for event in ours if event["regarding"]["name"] == pod}


def said(centre: PlayedCentre, pod: str) -> str:
    """The reason of the condition in which a pod says why it waits."""
    conditions = next(
        one["status"].get("conditions", []) for one in centre.pods("one") if one["metadata"]["name"] == pod
    )
    return next((one["reason"] for one in conditions if one["type"] == NAMES.admitted), "")


def used(centre: PlayedCentre, name: str) -> int:
    """How much compute a queue's status says that it uses; -1 if it says nothing."""
    status = centre.api.get(f"{QUEUES}/{name}").get("status", {})
    return int(status.get("used", {}).get("compute", -1))


def test_events_tell_why_a_pod_waits_and_that_it_goes_in(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """One for each new reason, with the rights that the manifests give; none of a pod that never waited."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    with centre.applied([queue("one", compute={"limit": 200}), namespace]):
        for name in ("first", "second"):
            cluster.create_pod(asking(name, "one", {"compute": "150", "memory": "1000"}))
            centre.settled({"one": 150})
        cluster.wait_for("the reason to be told", lambda: told(centre, "second") == {("OverLimit", "Queueing")})
        assert said(centre, "second") == "OverLimit"
        centre.api.patch(f"{QUEUES}/one", {"spec": {"stop": "hold"}})
        cluster.wait_for("the next one to be told", lambda: ("QueueHeld", "Queueing") in told(centre, "second"))
        centre.api.patch(f"{QUEUES}/one", {"spec": {"stop": None}})
        centre.end(centre.holding("one")[0])
        cluster.wait_for("its turn to be told", lambda: ("LetIn", "Admitting") in told(centre, "second"))
        assert told(centre, "first") == set()


def test_a_bound_pod_stays_charged_where_it_was_let_in(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Its namespace goes to another queue, and a leader reads all anew: what waits goes there, what runs stays."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    with centre.applied([queue("one", compute={"limit": 200}), queue("two", compute={"limit": 50}), namespace]):
        for name in ("runs", "waits"):
            cluster.create_pod(asking(name, "one", {"compute": "150", "memory": "1000"}))
            centre.settled({"one": 150})
        centre.api.patch("/api/v1/namespaces/one", {"metadata": {"labels": {NAMES.queue: "two"}}})
        replica = centre.centre.replicas[0]
        replica.process.stop()
        replica.start()
        cluster.wait_for("the new leader to tell", lambda: said(centre, "waits") == "NeverFits")
        cluster.wait_for("both queues to be told of", lambda: used(centre, "one") == 150 and used(centre, "two") == 0)
