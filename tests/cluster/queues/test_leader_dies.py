"""The leader is killed while it has pods go for others: the next one goes on, and sends nobody away in addition."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import msgspec

from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.controlplane import LOOPBACK
from cluster.harness.errors import ApiError
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.test_decide import home, priority_class, submit
from support.queue_scenarios import Pods

# Who asks is kept waiting for so long, three times before it gives the pod up.
SECONDS = 5


def never_answers(pod: str, *, port: int) -> Json:
    """Whoever has to be asked before a pod of this name is evicted, and says nothing."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}]
    webhook = {
        "name": "never-answers.example.com",
        "clientConfig": {"url": f"https://{LOOPBACK}:{port}/"},
        "rules": rules,
        "matchConditions": [{"name": "it", "expression": f"request.name == '{pod}'"}],
        "timeoutSeconds": SECONDS,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    meta = {"name": "never-answers"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": meta,
        "webhooks": [webhook],
    }


@contextmanager
def stuck(centre: PlayedCentre, namespace: str, pod: str) -> Iterator[None]:
    """Nobody is told for seconds whether this pod is evicted; then that nobody knows."""
    meta = {"name": pod, "namespace": namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}

    def is_stuck() -> bool:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        try:
            centre.api.request("POST", path, body=eviction, query={"dryRun": "All"})
        except ApiError:
            return True
        return False

    with closing(socket.create_server((LOOPBACK, 0))) as silent, ExitStack() as asked:
        asked.enter_context(centre.applied([never_answers(pod, port=silent.getsockname()[1])]))
        centre.cluster.wait_for("evictions to be kept waiting", is_stuck)
        yield


def names(pods: list[Json]) -> list[str]:
    """Of pods."""
    return sorted(str(pod["metadata"]["name"]) for pod in pods)


URGENT = 10
# Other tests have pods of the same names.
FOR_IT = "it makes room for red-1/p4 "
FOR_ONE = "it makes room for green-1/p1 "


def test_a_leader_that_dies_between_two_evictions_and_before_it_admits(
    cluster: ClusterHarness, centre: PlayedCentre
) -> None:
    """Of three two were asked, and one is gone: its card is kept, and the third alone is asked by the next leader.

    And the only one who had to go for another is gone before that one was let in: it is by the next leader, and nobody
    goes for it again. Else both rooms would be given to the other queue, which has nothing and so comes first.
    """
    within = {"withinQueue": "SameUser"}
    queues = [queue("red", preemption=within), queue("green", preemption=within), queue("other")]
    made = {"red": 0, "green": 0, "other": 0}
    part = Pods(queue="green", count=1, compute=40)
    whole = Pods(queue="red", count=3, compute=100)
    gang = msgspec.structs.replace(whole, priority=URGENT, gang="g", notes={"group-size": "3"})
    with centre.applied([priority_class(URGENT), *queues, *map(home, made)]):
        # One that stays and three of lower priority, so that it is plain who goes.
        submit(cluster, msgspec.structs.replace(whole, count=1, compute=60, priority=URGENT), made)
        submit(cluster, whole, made)
        centre.settled({"red-1": 360})
        submit(cluster, part, made)
        centre.settled({"green-1": 40})
        submit(cluster, Pods(queue="other", count=1, compute=10), made)
        submit(cluster, msgspec.structs.replace(part, priority=URGENT), made)
        cluster.wait_for("one to be asked for another", lambda: names(centre.leaving("green-1")) == ["p0"])
        with stuck(centre, "red-1", "p3"):
            submit(cluster, gang, made)
            cluster.wait_for("two to be asked", lambda: names(centre.leaving("red-1")) == ["p1", "p2"])
            centre.centre.replicas[0].process.kill()
        centre.let_go("green-1")
        first, _ = centre.leaving("red-1")
        centre.api.delete(centre.api.path_of(first), gracePeriodSeconds=0)
        centre.centre.replicas[0].start()
        cluster.wait_for("the third to be asked", lambda: names(centre.leaving("red-1")) == ["p2", "p3"], timeout=90)
        assert (names(centre.holding("red-1")), centre.held("other-1")) == (["p0", "p2", "p3"], 0)
        centre.let_go("red-1")
        centre.settled({"red-1": 360, "green-1": 40, "other-1": 0})
        assert (centre.leaving("red-1"), centre.leaving("green-1")) == ([], [])
        assert names(centre.holding("green-1")) == ["p1"]
        alone = [line["pod"] for line in centre.centre.logged("evicted") if line["why"].startswith(FOR_ONE)]
        assert alone == ["green-1/p0"]
        asked = Counter(line["pod"] for line in centre.centre.logged("evicted") if line["why"].startswith(FOR_IT))
        # Who was killed before it had the answer has not told of it.
        assert asked["red-1/p1"] <= 1
        assert asked["red-1/p2"] <= 1
        assert asked["red-1/p3"] == 1
