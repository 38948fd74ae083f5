"""Which workload a pod belongs to, as people name it: the Deployment rather than its ReplicaSet."""

from __future__ import annotations

from aliquot_core.names import Names
from aliquot_core.objects import OwnerReference, Pod
from aliquot_scheduler.page.model import Owner

_HASH = "pod-template-hash"


def owner_of(pod: Pod, *, names: Names) -> Owner:
    """The controller, else the group that the pod names, else the pod itself."""
    meta = pod.metadata
    for one in meta.owner_references:
        if one.controller:
            return _controller(one, pod)
    if group := meta.labels.get(names.group):
        return Owner(namespace=meta.namespace, kind="Group", name=group)
    return Owner(namespace=meta.namespace, kind="Pod", name=meta.name)


def _controller(one: OwnerReference, pod: Pod) -> Owner:
    # No name ends in a hyphen, so without the label nothing is cut off.
    tail = f"-{pod.metadata.labels.get(_HASH, '')}"
    if one.kind == "ReplicaSet" and one.name.endswith(tail):
        return Owner(namespace=pod.metadata.namespace, kind="Deployment", name=one.name.removesuffix(tail))
    return Owner(namespace=pod.metadata.namespace, kind=one.kind, name=one.name)
