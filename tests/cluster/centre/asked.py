"""Pods of these tests, and what they were granted."""

from __future__ import annotations

from typing import Any

from aliquot_core.grant import Grant, Slice, decode_grant
from cluster.centre_half import NAMES, SCHEDULER
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.pods import pod, stays
from cluster.node_half import asks, shows

GATES = [{"name": NAMES.gate}]
ZONE = "aliquot.test/zone"


def asking(
    name: str,
    namespace: str,
    compute: int,
    memory: int,
    *,
    gated: bool = True,
    lasting: bool = False,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod behind its gate, as the webhook leaves it."""
    container = stays(limits=asks(compute, memory)) if lasting else shows(limits=asks(compute, memory))
    wanted = pod(name, container, namespace=namespace, scheduler=SCHEDULER, annotations=annotations, **spec)
    wanted["spec"] |= {"schedulingGates": GATES} if gated else {}
    return wanted


def grant_of(cluster: ClusterHarness, made: Json) -> Grant:
    """What the pod was granted."""
    return decode_grant(cluster.current(made)["metadata"]["annotations"][NAMES.grant])


def slice_of(cluster: ClusterHarness, made: Json) -> Slice:
    """The only slice that the pod was granted."""
    ((_, part),) = grant_of(cluster, made).slices()
    return part


def affinity(kind: str, zone: str) -> Json:
    """Node affinity to a zone, required or preferred."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    if kind == "required":
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    weighted = {"weight": 1, "preference": term}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def beside(app: str) -> Json:
    """Affinity to a pod, which only kube-scheduler sees: where there is none, no node will do."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
