"""Nodes, heart-beats and pods as the centre is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health, Inventory, decode_inventory, encode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Node, Pod, PodCondition
from aliquot_core.quantities import MiB, Percent
from aliquot_scheduler.picture.hearing import told_all
from aliquot_scheduler.picture.picture import Picture

NAMES = Names()
MEMORY = 80_000
WALL = 1_795_255_200.0  # 2026-11-21T10:00:00Z
# Compute and memory as a container writes them; None leaves one out.
Asked = tuple[int | None, int | None]


def gpus(node: str, count: int, *, model: str = "NVIDIA A100-SXM4-80GB", memory: int = MEMORY) -> tuple[Gpu, ...]:
    """Equal GPUs of a node."""
    return tuple(Gpu(uuid=f"GPU-{node}-{index}", index=index, model=model, memory=memory) for index in range(count))


def sick(gpu: Gpu) -> Gpu:
    """The same GPU, not to be given."""
    return msgspec.structs.replace(gpu, health=Health.SICK, reason="XID 79")


def failing(gpu: Gpu) -> Gpu:
    """The same GPU, degraded by what is the matter with the card."""
    return msgspec.structs.replace(gpu, health=Health.DEGRADED, failing=True, reason="XID 94")


def make_node(name: str, cards: Sequence[Gpu], *, cordoned: bool = False, ready: str = "True", **more: Any) -> Node:
    """A node as its kubelet and its agent have written it."""
    annotations = {NAMES.inventory: encode_inventory(Inventory(driver="580", gpus=tuple(cards)))}
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": annotations | more.pop("annotations", {}), **more},
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        },
        Node,
    )


def counting(node: Node, *, memory: int = MEMORY, held: tuple[int, int, int] = (0, 0, 0), places: int = 32) -> Node:
    """The same node, whose kubelet tells of our resources: so much memory and places of each GPU that is well.

    And beside them what is `held` on those that are.
    """
    inventory = decode_inventory(node.metadata.annotations[NAMES.inventory])
    cards = sum(gpu.health is not Health.SICK for gpu in inventory.gpus)
    each = zip(NAMES.resources(), (100, memory, places), held, strict=True)
    told = {name: str(amount * cards + more) for name, amount, more in each}
    status = msgspec.structs.replace(node.status, allocatable={**node.status.allocatable, **told})
    return msgspec.structs.replace(node, status=status)


def make_lease(node: str, *, renewed: str = "2026-11-21T10:00:00.000000Z", state: str = "ready") -> Lease:
    """A node's heart-beat."""
    return msgspec.convert(
        {
            "metadata": {
                "name": NAMES.lease(node),
                "namespace": NAMES.namespace,
                "annotations": {NAMES.state: state},
            },
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 10, "renewTime": renewed},
        },
        Lease,
    )


def container(name: str, asked: Asked, **more: Any) -> dict[str, Any]:
    """A container that asks for so much; without compute as the webhook leaves it."""
    compute, memory = asked
    limits: dict[str, str] = {}
    if compute is not None:
        limits[NAMES.compute] = str(compute)
    else:
        limits[NAMES.best_effort] = "1"
    if memory is not None:
        limits[NAMES.memory] = str(memory)
    return {"name": name, "resources": {"limits": limits}, **more}


def make_pod(
    uid: str,
    *containers: Mapping[str, Any],
    inits: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    spec: Mapping[str, Any] | None = None,
    **meta: Any,
) -> Pod:
    """A pod as the API server tells of it."""
    return msgspec.convert(
        {
            "metadata": {
                "name": f"pod-{uid}",
                "namespace": "team",
                "uid": uid,
                "annotations": dict(annotations or {}),
                **meta,
            },
            "spec": {
                "nodeName": node,
                "containers": list(containers),
                "initContainers": list(inits),
                **(spec or {}),
            },
            "status": {"phase": phase},
        },
        Pod,
    )


def asks(uid: str, compute: int | None, memory: int | None, **more: Any) -> Pod:
    """A pod with one container that asks."""
    return make_pod(uid, container("main", (compute, memory)), **more)


def bound(pod: Pod, *, node: str, held: Mapping[str, tuple[int, int]], container_name: str = "main") -> Pod:
    """The pod bound to a node with these slices, by uuid, for one container."""
    slices = tuple(
        Slice(gpu=uuid, compute=Percent(compute), limit=Percent(compute or 100), memory=MiB(memory))
        for uuid, (compute, memory) in held.items()
    )
    grant = Grant(node=node, pod=pod.metadata.uid, containers={container_name: ContainerGrant(slices=slices)})
    return with_grant(pod, grant)


def with_grant(pod: Pod, grant: Grant) -> Pod:
    """The pod as its binding leaves it."""
    annotations = pod.metadata.annotations | {NAMES.grant: encode_grant(grant)}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=annotations),
        spec=msgspec.structs.replace(pod.spec, node_name=grant.node),
    )


def running(pod: Pod) -> Pod:
    """The pod once its containers run and are ready."""
    conditions = [*pod.status.conditions, PodCondition(type="Ready", status="True")]
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, phase="Running", conditions=conditions)
    )


def picture_with(*nodes: Node, now: float = 0.0) -> Picture:
    """A picture of nodes whose agents were just heard of."""
    picture = Picture(names=NAMES, hearing=told_all())
    picture.tell_time(now)
    for node in nodes:
        picture.node_seen(node)
        picture.lease_seen(make_lease(node.metadata.name), wall=WALL)
    return picture
