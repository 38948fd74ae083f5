"""Machines and jobs as the centre is told of them: nodes with heart-beats, pods behind their gates."""

from __future__ import annotations

import msgspec

from aliquot_core.grant import Grant, encode_grant
from aliquot_core.instants import micro_time, second_time
from aliquot_core.inventory import Gpu, Inventory, encode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Lease, Node, Pod, PodCondition
from aliquot_scheduler.simulating.timed.job import Job
from aliquot_scheduler.simulating.workload import MILLI, Machine, Need

# A simulation's first second, and how long a heart-beat lasts there: for ever.
_EPOCH = 1_600_000_000.0
_FOR_EVER = 10**9
# MiB of a card of which a trace says nothing; no pod then says anything of memory either.
_SOME_CARD = 16_384
_PERCENT = MILLI // 100
_CONTAINER = "main"


def node_name(row: int) -> str:
    """Of the machine in this row: names of a trace need not be names of Kubernetes."""
    return f"n{row:05}"


def node_of(machine: Machine, *, row: int, names: Names) -> Node:
    """The node, with its GPUs."""
    gpus = tuple(
        Gpu(uuid=f"GPU-{row}-{index}", index=index, model=machine.model, memory=machine.card or _SOME_CARD)
        for index in range(machine.gpus)
    )
    inventory = encode_inventory(Inventory(driver="0", gpus=gpus))
    return msgspec.convert(
        {
            "metadata": {
                "name": node_name(row),
                "labels": dict(machine.labels),
                "annotations": {names.inventory: inventory},
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {"cpu": f"{machine.cores}m", "memory": f"{machine.memory}Mi"},
            },
        },
        Node,
    )


def lease_of(row: int, *, names: Names) -> tuple[Lease, float]:
    """A heart-beat that never grows old, and the wall clock's time at which it is seen."""
    name = node_name(row)
    lease = msgspec.convert(
        {
            "metadata": {
                "name": names.lease(name),
                "namespace": names.namespace,
                "annotations": {names.state: "ready"},
            },
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": _FOR_EVER,
                "renewTime": micro_time(_EPOCH),
            },
        },
        Lease,
    )
    return lease, _EPOCH


def wall_of(now: float) -> float:
    """What the clock on the wall says."""
    return _EPOCH + now


def pod_of(job: Job, need: Need, *, uid: str, now: float, names: Names) -> Pod:
    """The pod behind its gate, of the team's queue; the user is its namespace. Made anew it is another pod."""
    limits: dict[str, str] = {}
    notes: dict[str, str] = {}
    if need.gpus:
        limits[names.compute] = str(-(-need.total // _PERCENT))
        if need.card:
            limits[names.memory] = str(need.card * need.gpus)
        if need.gpus > 1 and need.milli < MILLI:
            notes[names.gpus] = str(need.gpus)
        if need.models:
            notes[names.gpu_model] = ",".join(need.models)
    requests = {"cpu": f"{need.cores}m", "memory": f"{need.memory}Mi"}
    return msgspec.convert(
        {
            "metadata": {
                "name": f"pod-{job.number:08}",
                "namespace": job.user,
                "uid": uid,
                # Whoever makes it anew when it had to go.
                "ownerReferences": [{"kind": "Job", "uid": f"job-{job.number}", "controller": True}],
                "labels": {names.queue: job.team},
                "annotations": notes,
                "creationTimestamp": second_time(wall_of(now)),
            },
            "spec": {
                "schedulingGates": [{"name": names.gate}],
                "containers": [{"name": _CONTAINER, "resources": {"requests": requests, "limits": limits}}],
            },
            "status": {"phase": "Pending"},
        },
        Pod,
    )


def bound(pod: Pod, *, node: str, grant: Grant | None, now: float, names: Names) -> Pod:
    """The pod as its binding leaves it; one without GPUs has no grant."""
    notes = pod.metadata.annotations | ({names.grant: encode_grant(grant)} if grant else {})
    scheduled = PodCondition(type="PodScheduled", status="True", last_transition_time=second_time(wall_of(now)))
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=notes),
        spec=msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[]),
        status=msgspec.structs.replace(pod.status, conditions=[scheduled]),
    )


def leaving(pod: Pod, *, by: float) -> Pod:
    """The pod on its way out: it is gone by then."""
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=second_time(wall_of(by)))
    return msgspec.structs.replace(pod, metadata=meta)
