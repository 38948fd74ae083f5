"""Containers that are to start, with their pods and grants, and what the agent knows when it is asked."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.decision import Decision, Known
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_agent.starting.starts import decide
from aliquot_core.claims import Claim
from aliquot_core.door import PreStart
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent

NAMES = Names()
CARDS = Inventory(
    gpus=(
        Gpu(uuid="GPU-a", index=0, model="A100", memory=80_000),
        Gpu(uuid="GPU-b", index=1, model="A100", memory=80_000, health=Health.SICK, reason="XID 79"),
    )
)
Asked = dict[str, tuple[int, int]]


def slice_of(compute: int, memory: int, gpu: str = "GPU-a") -> Slice:
    """A slice without burst."""
    return Slice(gpu=gpu, compute=Percent(compute), limit=Percent(compute), memory=MiB(memory))


def make_pod(uid: str, *, app: Asked, init: Asked | None = None, node: str = "n1", **more: Any) -> Pod:
    """A pod bound here, with a grant on GPU-a for what each container asks (percent, MiB)."""

    def containers(asked: Asked) -> list[dict[str, Any]]:
        return [
            {"name": name, "resources": {"limits": {NAMES.compute: str(c), NAMES.memory: str(m)}}}
            for name, (c, m) in asked.items()
        ]

    granted = {
        name: ContainerGrant(slices=(slice_of(c, m),), isolation="observe")
        for name, (c, m) in ({**(init or {}), **app}).items()
    }
    grant = encode_grant(Grant(node=node, pod=uid, containers=granted))
    annotations = {NAMES.grant: grant} | more.pop("annotations", {})
    return msgspec.convert(
        {
            "metadata": {"name": f"pod-{uid}", "namespace": "team", "uid": uid, "annotations": annotations},
            "spec": {"nodeName": node, "containers": containers(app), "initContainers": containers(init or {})},
            "status": {"phase": more.get("phase", "Pending")},
        },
        Pod,
    )


def record(uid: str, container: str, ids: set[str], name: str = "") -> Recorded:
    """A line of the kubelet's own record."""
    full = NAMES.cdi_name(name or f"{uid}-{container}")
    return Recorded(uid=uid, container=container, resource=NAMES.compute, ids=frozenset(ids), names=(full,))


def ask(
    ids: set[str],
    *,
    pods: list[Pod],
    recorded: list[Recorded] | None,
    listed: tuple[Listed, ...] = (),
    names: tuple[str, ...] = (),
    standing: dict[str, Standing] | None = None,
    inventory: Inventory = CARDS,
) -> Decision:
    """Decide on a call for these ids."""
    known = Known(
        node="n1",
        names=NAMES,
        inventory=inventory,
        pods={pod.metadata.uid: pod for pod in pods},
        recorded=None if recorded is None else tuple(recorded),
        listed=listed,
        standing=standing or {},
        record_problem="" if recorded is not None else "no record",
    )
    return decide(PreStart(call=1, resource=NAMES.compute, ids=sorted(ids), names=list(names)), known=known)


def edited(pod: Pod, text: str | None) -> Pod:
    """The pod with another grant, or none."""
    annotations = {} if text is None else {NAMES.grant: text}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def regranted(pod: Pod, *, node: str = "n1", uid: str = "u1", container: str = "main", part: Slice) -> Pod:
    """The pod with a grant of one slice."""
    grant = Grant(node=node, pod=uid, containers={container: ContainerGrant(slices=(part,), isolation="observe")})
    return edited(pod, encode_grant(grant))


BASE = make_pod("u1", app={"main": (30, 8_000)})


def standing(compute: int, memory: int) -> dict[str, Standing]:
    """What pod u1 held when it started."""
    return {"u1": Standing(pod="team/pod-u1", claims={"GPU-a": Claim(compute=Percent(compute), memory=MiB(memory))})}
