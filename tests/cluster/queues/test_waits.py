"""Why pods wait, and what lets them in: nodes, taints, CPU of others, room that is to come."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import QUEUES, queue
from cluster.queues.told import condition, events, said, tells

# A turn comes within this once a node takes the pod.
SOON = 2.0
ONE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}}


def told(centre: PlayedCentre, pod: str) -> set[tuple[str, str]]:
    """The Events of a pod that are the centre's: reason, and what is done about it."""
    return {(event["reason"], event["action"]) for event in events(centre, pod)}


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


def expect_to_wait_and_come_in(centre: PlayedCentre, pod: Json, *, why: str, mend: Callable[[], object]) -> None:
    """It stays behind its gate and says why; and is let in soon after that is mended, and bound."""
    name = pod["metadata"]["name"]
    centre.cluster.create_pod(pod)
    centre.cluster.wait_for(f"{name} to say why it waits", lambda: said(centre, name) == "NoNode" or None)
    assert condition(centre, name)["message"] == why
    centre.lined_up({"one": 1})
    mend()
    centre.cluster.wait_for(f"{name} to be let in", lambda: centre.waiting("one") == 0 or None, timeout=SOON)
    centre.cluster.wait_for(
        f"{name} to be bound", lambda: name in {one["metadata"]["name"] for one in centre.holding("one")} or None
    )
    (held,) = [one for one in centre.pods("one") if one["metadata"]["name"] == name]
    # A turn that had led to nothing would be counted.
    assert NAMES.turn not in held["metadata"]["annotations"]


def test_a_pod_waits_for_a_node_with_its_labels(centre: PlayedCentre) -> None:
    """A node that has them but no room is told of, and another one that gets them takes the pod at once."""
    picky = asking("picky", "one", {"compute": "100", "memory": "1000"})
    picky["spec"]["nodeSelector"] = {"disk": "ssd"}
    labelled = {"metadata": {"labels": {"disk": "ssd"}}}
    with centre.applied([ONE]), centre.one_more_node("gpu2", gpus=1) as full:
        centre.api.patch(full, labelled)
        first = asking("first", "one", {"compute": "100", "memory": "1000"})
        first["spec"]["nodeSelector"] = {"disk": "ssd"}
        centre.cluster.create_pod(first)
        centre.settled({"one": 100})
        expect_to_wait_and_come_in(
            centre,
            picky,
            why="1 node has room on its GPUs: 1 is not what its nodeSelector or its affinity to nodes names; "
            "the one that would take it has no room on its GPUs",
            mend=lambda: centre.api.patch("/api/v1/nodes/gpu1", labelled),
        )
        centre.api.patch("/api/v1/nodes/gpu1", {"metadata": {"labels": {"disk": None}}})


def test_a_pod_waits_for_a_node_that_is_not_tainted(centre: PlayedCentre) -> None:
    """It is told of the taint, and comes in when that is taken off."""
    node = "/api/v1/nodes/gpu1"
    centre.api.patch(node, {"spec": {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}})
    with centre.applied([ONE]):
        expect_to_wait_and_come_in(
            centre,
            asking("plain", "one", {"compute": "100", "memory": "1000"}),
            why="1 node has room on its GPUs: 1 is tainted (team=red)",
            mend=lambda: centre.api.patch(node, {"spec": {"taints": None}}),
        )


@pytest.mark.parametrize("whose", ["its container", "all its containers"])
def test_a_pod_waits_for_cpu_that_others_have(centre: PlayedCentre, whose: str) -> None:
    """Also a pod that asks nothing of ours has it; when that has ended, who waits comes in."""
    with centre.applied([ONE]):
        web = asking("web", "one", {})
        asked = web["spec"] if whose == "all its containers" else web["spec"]["containers"][0]
        asked["resources"] = {"requests": {"cpu": "60"}}
        web["spec"]["nodeName"] = "gpu1"
        made = centre.cluster.create_pod(web)
        hungry = asking("hungry", "one", {"compute": "100", "memory": "1000"})
        asked = hungry["spec"] if whose == "all its containers" else hungry["spec"]["containers"][0]
        asked.setdefault("resources", {})["requests"] = {"cpu": "10"}
        expect_to_wait_and_come_in(
            centre,
            hungry,
            why="1 node has room on its GPUs: 1 has 4 CPUs free of 10 asked",
            mend=lambda: centre.end(made),
        )


def unschedulable(centre: PlayedCentre, name: str) -> bool:
    """Whether kube-scheduler says so of a pod: by this a cluster autoscaler knows that a node is wanted."""
    conditions = next(one["status"]["conditions"] for one in centre.pods("one") if one["metadata"]["name"] == name)
    return any(
        (one["type"], one["status"], one.get("reason")) == ("PodScheduled", "False", "Unschedulable")
        for one in conditions
    )


def stays_shown(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Its quota is gone meanwhile: no gate is lifted in its place, and nothing is written once there is quota again."""
    before = notes(centre, "shown")
    assert before[NAMES.shown].split()[1:] == ["1", "one"]
    centre.api.patch(f"{QUEUES}/one", {"spec": {"compute": {"limit": 550}}})
    cluster.wait_for("it to be put out", lambda: said(centre, "shown") == "OverLimit" or None)
    # There would be quota for it alone.
    late = cluster.create_pod(asking("late", "one", {"compute": "150", "memory": "1500"}))
    cluster.wait_for("it to be told why it waits", lambda: said(centre, "late") == "NoRoom" or None)
    centre.lined_up({"one": 2})
    centre.api.patch(f"{QUEUES}/one", {"spec": {"compute": {"limit": 700}}})
    cluster.wait_for("there to be quota again", lambda: said(centre, "shown") == "NoRoom" or None)
    assert notes(centre, "shown") == before
    centre.lined_up({"one": 2})
    centre.api.delete(centre.api.path_of(late), gracePeriodSeconds=0)


def notes(centre: PlayedCentre, name: str) -> dict[str, str]:
    """What is written on a pod."""
    (found,) = [one["metadata"]["annotations"] for one in centre.pods("one") if one["metadata"]["name"] == name]
    return dict(found)


@pytest.mark.timeout(240)
def test_a_queue_that_grows_shows_its_pods_to_a_cluster_autoscaler(
    cluster: ClusterHarness, centre: PlayedCentre
) -> None:
    """Within quota and without cards: the gate is lifted, the quota keeps others out, and a new node takes the pod."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    with centre.applied([queue("one", compute={"limit": 700}, autoscale=True), namespace]):
        cluster.create_pod(asking("fills", "one", {"compute": "400", "memory": "4000"}))
        centre.settled({"one": 400})
        cluster.create_pod(asking("shown", "one", {"compute": "200", "memory": "2000"}))
        cluster.wait_for("kube-scheduler to say it", lambda: unschedulable(centre, "shown") or None, timeout=60)
        # Later, also by name: of two that were created within one second the name decides who is shown.
        cluster.create_pod(asking("too-much", "one", {"compute": "200", "memory": "2000"}))
        centre.lined_up({"one": 1})
        cluster.wait_for("it to be told as one that waits", lambda: tells(centre, "one") == (400, 2), timeout=60)
        for name in ("shown", "too-much"):
            cluster.wait_for(f"{name} to say why", lambda name=name: said(centre, name) == "NoRoom" or None)  # type: ignore[misc]
        assert condition(centre, "shown")["message"].startswith("it is shown to a cluster autoscaler: ")
        centre.api.patch(f"{QUEUES}/one", {"spec": {"stop": "hold"}})
        cluster.wait_for("that it is held to be told", lambda: said(centre, "shown") == "QueueHeld" or None)
        centre.api.patch(f"{QUEUES}/one", {"spec": {"stop": None}})
        cluster.wait_for("that there is no room to be told", lambda: said(centre, "shown") == "NoRoom" or None)
        stays_shown(cluster, centre)
        with centre.one_more_node("gpu3", gpus=2):
            centre.settled({"one": 600}, timeout=60)
            for pod in centre.holding("one"):
                centre.end(pod)
            centre.settled({"one": 200}, timeout=60)
            for pod in centre.holding("one"):
                centre.end(pod)
