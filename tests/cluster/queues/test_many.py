"""A thousand identical pods of one queue, and what a Deployment and a CronJob of another make beside them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.test_command import told
from cluster.queues.test_decide import home
from cluster.queues.told import used

MANY = 1_000
# A thousand halves would teach the centre that halves are what is asked, and other tests want their cards whole.
WHOLE = {"compute": "100", "memory": "1000"}
# Clients at once; the API server answers each in milliseconds.
HANDS = 8
# Until the next full minute, on a busy machine.
A_MINUTE = 100


def template(restart: str) -> Json:
    """A pod of a GPU, for a controller to make."""
    spec = asking("any", "blue-1", WHOLE)["spec"]
    return {"metadata": {"labels": {"app": "whole"}}, "spec": {**spec, "restartPolicy": restart}}


def nightly() -> Json:
    """A CronJob of each minute; the next one waits until the one before has ended."""
    job = {"spec": {"template": template("Never")}}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": job}
    meta = {"name": "nightly", "namespace": "blue-1"}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec}


def service(replicas: int) -> Json:
    """A Deployment."""
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "whole"}}, "template": template("Always")}
    meta = {"name": "service", "namespace": "blue-1"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def makers(centre: PlayedCentre) -> list[str]:
    """Of which kinds those are that have made the pods of blue's which hold slices."""
    return sorted(pod["metadata"]["ownerReferences"][0]["kind"] for pod in centre.holding("blue-1"))


@pytest.mark.timeout(400)
def test_a_thousand_identical_pods_keep_no_place_from_others(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Each has its place and its reason; what Deployment and CronJob of another queue make comes in before them."""
    with centre.applied([queue("red"), queue("blue"), home("red"), home("blue"), nightly()]):
        with ThreadPoolExecutor(HANDS) as hands:
            list(hands.map(cluster.create_pod, [asking(f"p{number}", "red-1", WHOLE) for number in range(MANY)]))
        with centre.applied([service(1)]):
            cluster.wait_for("both of blue's to be there", lambda: len(centre.pods("blue-1")) == 2, timeout=A_MINUTE)
            # By what is told of queues: a list of a thousand pods is four megabytes.
            cluster.wait_for("the cards to be full", lambda: used(centre, "red") + used(centre, "blue") == 400)
            # Its CronJob may have come in before the many were there.
            lacks = 2 - used(centre, "blue") // 100
            centre.settled({"red-1": used(centre, "red")})
            before = [pod["metadata"]["name"] for pod in centre.holding("red-1")]
            many = told(centre, "queue", "red")["pods"]
            assert sorted(pod["place"] > 0 for pod in many) == [True] * (MANY - len(before))
            assert {(pod["reason"], pod["compute"]) for pod in many} == {("NoRoom", 100)}
            for pod in centre.holding("red-1")[:lacks]:
                centre.end(pod)
            cluster.wait_for("both to have half", lambda: (used(centre, "red"), used(centre, "blue")) == (200, 200))
            centre.settled({"blue-1": 200})
            assert makers(centre) == ["Job", "ReplicaSet"]
            # Nobody of the many came in for those who ended.
            stayed = centre.holding("red-1")
            assert {pod["metadata"]["name"] for pod in stayed} <= set(before)
            # Then the line goes on, one for one.
            centre.end(stayed[0])
            centre.settled({"red-1": 200})
            assert centre.waiting("red-1") == MANY - len(before) - 1
