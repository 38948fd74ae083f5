"""Pods are moved off a degraded GPU by the real centre, API server and kube-scheduler; a ReplicaSet makes them anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from aliquot_core.grant import decode_grant
from aliquot_core.inventory import decode_inventory, encode_inventory
from cluster.guarded import asking
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.installed import NAMES
from cluster.played_centre import PlayedCentre
from cluster.queueing import queue
from cluster.queues.going import evicted, ran_for
from support.centre import failing

NODE = "/api/v1/nodes/gpu1"
HOURS = 7_200.0


def made_anew(name: str, replicas: int, compute: int, **notes: str) -> Json:
    """A ReplicaSet."""
    spec = asking("any", "one", {"compute": str(compute), "memory": "1000"})["spec"]
    labels = {"app": name}
    meta = {"labels": labels, "annotations": {NAMES.of(key): text for key, text in notes.items()}}
    template = {"metadata": meta, "spec": {**spec, "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "one"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
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
    """Two who lie there are asked once and told where to; their successors lie on healthy GPUs, kept for them.

    Who has no maker stays, and so does who is never to be sent away.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one", "labels": {NAMES.queue: "one"}}}
    guaranteed = queue("one", compute={"guarantee": 20})
    with centre.applied([guaranteed, namespace, made_anew("worker", 2, 30, placement="pack")]):
        centre.settled({"one": 60})
        workers = centre.holding("one")
        (card,) = gpus_of(workers[0])
        with centre.applied([made_anew("firm", 1, 20, placement="pack", preemptible="false")]):
            centre.settled({"one": 80})
            beside = {NAMES.of("placement"): "pack"}
            cluster.create_pod(asking("alone", "one", {"compute": "20", "memory": "1000"}, annotations=beside))
            centre.settled({"one": 100})
            assert [gpus_of(pod) for pod in centre.holding("one")] == [{card}] * 4
            for pod in centre.holding("one"):
                ran_for(centre, pod, HOURS)
            # Whoever leads has heard of that once it has let in one that came later.
            cluster.create_pod(asking("later", "one", {"compute": "50", "memory": "1000"}))
            centre.settled({"one": 150})
            before, said = evicted(centre), degrade(centre, {card})
            try:
                cluster.wait_for("both to be asked to go", lambda: uids(centre.leaving("one")) == uids(workers))
                for worker in workers:
                    cluster.wait_for("it to be told why", lambda worker=worker: "Moved" in reasons(centre, worker))  # type: ignore[misc]
                centre.let_go("one")
                centre.settled({"one": 150})
                after = [pod for pod in centre.holding("one") if gpus_of(pod) == {card}]
                assert sorted(maker(pod) for pod in after) == ["", "firm"]
                assert centre.leaving("one") == []
                assert evicted(centre) - before == Counter(f"one/{pod['metadata']['name']}" for pod in workers)
            finally:
                centre.api.patch(NODE, {"metadata": {"annotations": {NAMES.inventory: said}}})


def uids(pods: Iterable[Json]) -> set[str]:
    """By which pods are the same, whatever becomes of them."""
    return {pod["metadata"]["uid"] for pod in pods}


def maker(pod: Json) -> str:
    """Who made it; empty if nobody but a person."""
    return next((str(owner["name"]) for owner in pod["metadata"].get("ownerReferences", ())), "")


def reasons(centre: PlayedCentre, pod: Json) -> set[str]:
    """Of Events about a pod."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
    uid = pod["metadata"]["uid"]
    return {one["reason"] for one in centre.api.items(path) if one["involvedObject"].get("uid") == uid}
