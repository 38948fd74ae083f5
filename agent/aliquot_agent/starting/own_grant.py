"""Is the grant a pod's own, and can this node keep it? Rules 2 and 3 of `starts`. Pure."""

from __future__ import annotations

from aliquot_agent.starting.decision import Known
from aliquot_core.claims import check_grant
from aliquot_core.errors import ClusterError
from aliquot_core.grant import Grant, decode_grant
from aliquot_core.inventory import Health
from aliquot_core.isolation import Keeping, keeping
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import quality_of


def own_grant(pod: Pod, *, names: Names) -> Grant:
    """Read the pod's grant, which must be for it and for what it asked; raises an `AliquotError` that says why not."""
    text = pod.metadata.annotations.get(names.grant)
    if text is None:
        raise NoGrantError(names.grant)
    grant = decode_grant(text)
    check_grant(grant, pod=pod, names=names)
    return grant


class NoGrantError(ClusterError):
    """The pod was bound by somebody who does not know of slices."""

    def __init__(self, annotation: str) -> None:
        super().__init__(
            f"bound without a grant (annotation {annotation})",
            remedy="let Aliquot's scheduler place it: leave spec.nodeName empty and use its scheduler profile",
        )


def misfit(grant: Grant, *, known: Known) -> str:
    """Say why this node's GPUs can't keep what the grant promises; empty if they can."""
    if grant.node != known.node:
        return f"the grant is for node {grant.node}, this is {known.node}"
    for name, container in grant.containers.items():
        for part in container.slices:
            gpu = known.inventory.gpu(part.gpu)
            if gpu is None:
                return f"container {name}: GPU {part.gpu} is not on node {known.node}"
            if gpu.health is Health.SICK:
                return f"container {name}: GPU {part.gpu} is sick: {gpu.reason or 'no reason known'}"
            if container.isolation and container.isolation not in gpu.isolation:
                return f"container {name}: GPU {part.gpu} does not hold isolation {container.isolation}"
        quality = quality_of(compute=container.compute, limit=container.limit)
        if keeping(container.isolation, quality) is Keeping.REFUSED:
            return f"container {name}: isolation {container.isolation} can't hold what is {quality}"
    return ""
