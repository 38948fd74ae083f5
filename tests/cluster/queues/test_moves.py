"""Pods are moved off a degraded GPU by the real centre, API server and kube-scheduler; a ReplicaSet makes them anew."""

from __future__ import annotations

import msgspec

from aliquot_core.grant import decode_grant
from aliquot_core.inventory import decode_inventory, encode_inventory
from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.going import ran_for
from support.centre import failing

NODE = "/api/v1/nodes/gpu1"
HOURS = 7_200.0


def worker() -> Json:
    """A ReplicaSet of one pod on half a GPU."""
    spec = asking("any", "one", {"compute": "50", "memory": "1000"})["spec"]
    labels = {"app": "worker"}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "worker", "namespace": "one"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def gpus_of(pod: Json) -> set[str]:
    """On which GPUs a pod lies."""
    return {part.gpu for _, part in decode_grant(pod["metadata"]["annotations"][NAMES.grant]).slices()}


def degrade(centre: PlayedCentre, gpus: set[str]) -> str:
    """Say of these GPUs that they are, as their agent would; what the node said before."""
    said: str = centre.api.get(NODE)["metadata"]["annotations"][NAMES.inventory]
    found = decode_inventory(said)
    cards = tuple(failing(gpu) if gpu.uuid in gpus else gpu for gpu in found.gpus)
    text = encode_inventory(msgspec.structs.replace(found, gpus=cards))
    centre.api.patch(NODE, {"metadata": {"annotations": {NAMES.inventory: text}}})
    return said


def test_a_degraded_gpu_drains_by_the_eviction_subresource(cluster: ClusterHarness, centre: PlayedCentre) -> None:
    """Who lies there is asked once and told where to; its successor lies on a healthy GPU, which was kept for it."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    with centre.applied([queue("one"), namespace, worker()]):
        centre.settled({"one": 50})
        (first,) = centre.holding("one")
        ran_for(centre, first, HOURS)
        # Whoever leads has heard of that once it has let in one that came later.
        cluster.create_pod(asking("later", "one", {"compute": "50", "memory": "1000"}))
        centre.settled({"one": 100})
        said = degrade(centre, gpus_of(first))
        try:
            cluster.wait_for("it to be asked to go", lambda: centre.leaving("one") or None)
            (asked,) = centre.leaving("one")
            assert asked["metadata"]["uid"] == first["metadata"]["uid"]
            cluster.wait_for("it to be told why", lambda: "Moved" in reasons(centre, first) or None)
            centre.let_go("one")
            centre.settled({"one": 100})
            after = {pod["metadata"]["name"]: gpus_of(pod) for pod in centre.holding("one")}
            (second,) = after.keys() - {"later"}
            assert not after[second] & gpus_of(first)
            assert centre.leaving("one") == []
        finally:
            centre.api.patch(NODE, {"metadata": {"annotations": {NAMES.inventory: said}}})


def reasons(centre: PlayedCentre, pod: Json) -> set[str]:
    """Of Events about a pod."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
    uid = pod["metadata"]["uid"]
    return {one["reason"] for one in centre.api.items(path) if one["involvedObject"].get("uid") == uid}
