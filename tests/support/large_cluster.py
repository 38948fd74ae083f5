"""Manifests of clusters that are large: nodes with GPUs and heart-beats, and pods that lie on them already."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Inventory, encode_inventory
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from support.centre import MEMORY, gpus

NAMES = Names()
NAMESPACE = "team"
SCHEDULER = "aliquot"
# MiB that go with a percent of compute, a little less than its share, so that memory is not what runs out.
PER_PERCENT = 700
_SIZES = (10, 20, 25, 30, 50, 75)
# Of a hundred queues so many are on each level of their tree.
_ON_LEVELS = (2, 6, 12, 30, 50)
Json = dict[str, Any]


def node_names(count: int) -> list[str]:
    """Names of so many nodes."""
    return [f"node-{number:04}" for number in range(count)]


def inventory_note(node: str, *, cards: int) -> dict[str, str]:
    """The annotation by which a node's agent tells of its GPUs."""
    return {NAMES.inventory: encode_inventory(Inventory(driver="580", gpus=gpus(node, cards)))}


def capacity(cards: int) -> dict[str, str]:
    """What such a node has of our resources."""
    return {NAMES.compute: str(100 * cards), NAMES.memory: str(MEMORY * cards), NAMES.best_effort: str(32 * cards)}


def node_manifest(name: str, *, cards: int) -> Json:
    """A node that is ready."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", **capacity(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": inventory_note(name, cards=cards)},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def lease_manifest(node: str, *, seconds: int = 3600) -> Json:
    """A heart-beat of now that is good for long: who measures writes no others."""
    stamp = datetime.now(tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": NAMES.lease(node),
            "namespace": NAMES.namespace,
            "annotations": {NAMES.state: "ready"},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": stamp},
    }


def queue_levels(count: int) -> list[list[str]]:
    """Names of so many queues by their level; pods may wait in those of the last one."""
    return [
        [f"level-{level}-{number:03}" for number in range(count * part // 100)] for level, part in enumerate(_ON_LEVELS)
    ]


def queue_manifests(count: int) -> Iterator[Json]:
    """A tree of so many queues with different weights, those above before those below."""
    above: list[str] = []
    for names in queue_levels(count):
        for number, name in enumerate(names):
            parent = {"parent": above[number * len(above) // len(names)]} if above else {}
            spec = {**parent, "compute": {"weight": 1 + number % 3}, "namespaces": [NAMESPACE]}
            yield {
                "apiVersion": f"{NAMES.domain}/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": spec,
            }
        above = names


def in_queue(pod: Json, number: int, *, queues: int) -> Json:
    """The pod in one of so many queues; without any as it is."""
    if not queues:
        return pod
    leaves = queue_levels(queues)[-1]
    return {**pod, "metadata": {**pod["metadata"], "labels": {NAMES.queue: leaves[number % len(leaves)]}}}


def pod_manifest(name: str, *, compute: int, memory: int, namespace: str = NAMESPACE, **spec: Any) -> Json:
    """A pod with one container that asks, for our scheduler."""
    limits = {NAMES.compute: str(compute), NAMES.memory: str(memory)}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "schedulerName": SCHEDULER, **spec},
    }


def binding_manifest(asked: Json, *, uid: str, node: str, gpu: str) -> Json:
    """The one write that binds a pod and grants it what its manifest asks (the API server writes 21000 as 21k)."""
    limits = asked["spec"]["containers"][0]["resources"]["limits"]
    compute = Percent(int(limits[NAMES.compute]))
    part = Slice(gpu=gpu, compute=compute, limit=compute, memory=MiB(int(limits[NAMES.memory])))
    grant = Grant(node=node, pod=uid, containers={"main": ContainerGrant(slices=(part,))})
    queue = asked["metadata"].get("labels", {}).get(NAMES.queue)
    charged = {NAMES.charged: queue} if queue else {}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": asked["metadata"]["name"], "annotations": {NAMES.grant: encode_grant(grant), **charged}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def lying_pods(count: int, *, nodes: list[str], cards: int, seed: int = 7) -> Iterator[tuple[Json, str, str]]:
    """Pods of mixed sizes with the node and GPU of each, as they lie after a while: here and there, never too many."""
    chance = random.Random(seed)
    left: dict[tuple[str, int], int] = {}
    for number in range(count):
        size = chance.choice(_SIZES)
        while left.get(place := (chance.choice(nodes), chance.randrange(cards)), 100) < size:
            pass
        left[place] = left.get(place, 100) - size
        node, index = place
        yield pod_manifest(f"old-{number:05}", compute=size, memory=size * PER_PERCENT), node, f"GPU-{node}-{index}"
