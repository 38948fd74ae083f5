"""Whom kube-scheduler may evict by itself, by priority alone: said here, for all who answer, refuse or tell of it.

Whoever has slices goes for others by queues only, across tenants and priorities. This knows of pods what they ask and
whose they are; who may go for whom by queues is `reclaim/`. What runs the cluster is told by the namespace alone: the
classes system-cluster-critical and system-node-critical anybody may give to a pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import asks

SYSTEM: Final = "kube-system"
# What an operator says of a namespace by its label `runs-the-cluster`, as the chart's policies read it.
LABELLED: Final = "true"
NO_LABELS: Final[Mapping[str, str]] = {}


def goes_by_priority(pod: Pod, *, names: Names) -> bool:
    """Whether it may be evicted so."""
    return not asks(pod, names=names)


def is_labelled(labels: Mapping[str, str], *, names: Names) -> bool:
    """Whether an operator says of the namespace that bears these that it runs the cluster."""
    return labels.get(names.runs_the_cluster) == LABELLED


def runs_the_cluster(pod: Pod, *, labels: Mapping[str, str], names: Names) -> bool:
    """Whether kube-scheduler evicts for a pod whom it finds: it has no slice, and what runs the cluster lives there.

    `labels` are its namespace's, where they are known.
    """
    is_system = pod.metadata.namespace in {SYSTEM, names.namespace} or is_labelled(labels, names=names)
    return is_system and not asks(pod, names=names)


def spared(
    pod: Pod, offered: Mapping[str, Sequence[str]], *, pods: Mapping[str, Pod], names: Names
) -> dict[str, list[str]]:
    """Of nodes, each with whom kube-scheduler would evict there for a pod, those where all of them may go.

    Fewer victims than it found would make no room, so a node stays as it is or goes. Who is not known holds no slice:
    all that do were bound by us. For a pod with slices nobody goes; of pods that run the cluster this is not asked.
    """
    if asks(pod, names=names):
        return {}
    return {
        node: list(victims)
        for node, victims in offered.items()
        if all(goes_by_priority(pods[uid], names=names) for uid in victims if uid in pods)
    }
