"""What a machine holds and does, in figures for scripts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from aliquot_core.grant import readable_grant
from aliquot_core.inventory import Gpu, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """So much of all."""

    granted: int
    of: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What `aliquot up --summary json` prints."""

    nodes: int
    gpus: int
    # Percent, and MiB.
    compute: Portion
    memory: Portion
    # How many pods are in which phase, and how many of the pending ones have no node.
    pods: dict[str, int]
    waiting: int
    ready_seconds: float
    api: str
    page: str


def summarise(
    *, nodes: Sequence[Node], pods: Sequence[Pod], names: Names, ready_seconds: float, api: str, page: str
) -> Summary:
    """Count what is there."""
    gpus = [gpu for node in nodes for gpu in _gpus(node, names=names)]
    slices = [
        one
        for pod in pods
        if not pod.ended and (grant := readable_grant(pod.metadata.annotations.get(names.grant)))
        for container in grant.containers.values()
        for one in container.slices
    ]
    return Summary(
        nodes=len(nodes),
        gpus=len(gpus),
        compute=Portion(granted=sum(one.compute.value for one in slices), of=sum(gpu.compute.value for gpu in gpus)),
        memory=Portion(granted=sum(one.memory.value for one in slices), of=sum(gpu.memory for gpu in gpus)),
        pods=dict(sorted(Counter(pod.status.phase or "Pending" for pod in pods).items())),
        waiting=sum(1 for pod in pods if not pod.spec.node_name and not pod.ended),
        ready_seconds=round(ready_seconds, 3),
        api=api,
        page=page,
    )


def _gpus(node: Node, *, names: Names) -> Iterable[Gpu]:
    text = node.metadata.annotations.get(names.inventory)
    return decode_inventory(text).gpus if text else ()
