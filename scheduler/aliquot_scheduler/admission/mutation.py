"""What is filled in when a pod that asks for slices is created: pod in, JSON Patch out.

- A container with memory and no compute gets one id of best effort, or the kubelet would never call us for it.
- A node that the author chose becomes a required affinity: a gated pod can't have a node, and one that is bound at
  its creation would pass quota and scheduler by.
- The pod goes to our scheduler profile, and behind the gate of its queue.
- A pod that declines (`use: none`) is rid of what a LimitRange put on its containers, and left alone otherwise.

What must hold: pods without our resources are never touched, and applying it twice is applying it once, since the API
server calls again after every other webhook that changed something (and lets LimitRanges in between).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import NO_USE, Kind, asks, kinds
from aliquot_scheduler.admission.review import MalformedReviewError, Operation
from aliquot_scheduler.admission.settings import DEFAULT_SCHEDULER

# Where Kubernetes writes what a LimitRange has put on which container: `LimitRanger plugin set: cpu, memory limit for
# container main; cpu request for container main`.
LIMIT_RANGER = "kubernetes.io/limit-ranger"

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LISTS = ("containers", "initContainers")
_SECTIONS = ("limits", "requests")


def mutate(pod: Pod, document: Mapping[str, Any], *, names: Names, scheduler_name: str) -> list[Operation]:
    """The patch for a pod that is created; `document` is the same pod as it was written."""
    if not asks(pod, names=names):
        return []
    if pod.metadata.labels.get(names.use) == NO_USE:
        return list(_stripped(document, names=names))
    spec = document["spec"]
    return [
        *_best_effort(document, names=names),
        *_held_to_node(spec),
        *_scheduled_by(pod, scheduler_name),
        *_gated(spec, names=names),
    ]


def _stripped(document: Mapping[str, Any], *, names: Names) -> Iterator[Operation]:
    for path, container in _containers(document):
        resources = container.get("resources", {})
        for section in _SECTIONS:
            for name in names.resources():
                if name in resources.get(section, {}):
                    yield {"op": "remove", "path": f"{path}/resources/{section}/{_escaped(name)}"}


def taken_off(pod: Pod, *, names: Names) -> Iterator[str]:
    """Warnings of what a pod that declines is rid of though its author wrote it: LimitRanges tell what is theirs."""
    if pod.metadata.labels.get(names.use) != NO_USE:
        return
    ranged = pod.metadata.annotations.get(LIMIT_RANGER, "").partition(": ")[2].split("; ")
    for kind, container in kinds(pod):
        sort = "init container" if kind is not Kind.APP else "container"
        whose = f" limit for {sort} {container.name}"
        given = {name for part in ranged if part.endswith(whose) for name in part.removesuffix(whose).split(", ")}
        for name in sorted(container.resources.limits.keys() & set(names.resources()) - given):
            yield f"{sort} {container.name}: {name} is taken off, since label {names.use}: {NO_USE} declines slices"


def pinned(pod: Pod, *, names: Names) -> Iterator[str]:
    """A warning that it goes to one node only: whoever copies a pod that runs has rarely chosen that."""
    node = pod.spec.node_name
    if node and asks(pod, names=names) and pod.metadata.labels.get(names.use) != NO_USE:
        yield f"spec.nodeName: the pod waits for node {node} and starts on no other; leave it out of a copy"


def _best_effort(document: Mapping[str, Any], *, names: Names) -> Iterator[Operation]:
    for path, container in _containers(document):
        resources = container.get("resources", {})
        named = {*resources.get("limits", {}), *resources.get("requests", {})}
        if names.memory not in named or names.compute in named or names.best_effort in named:
            continue
        for section in _SECTIONS:
            if section in resources:
                yield {"op": "add", "path": f"{path}/resources/{section}/{_escaped(names.best_effort)}", "value": "1"}
            else:
                yield {"op": "add", "path": f"{path}/resources/{section}", "value": {names.best_effort: "1"}}


def _containers(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in _LISTS:
        for index, container in enumerate(document["spec"].get(name, [])):
            yield f"/spec/{name}/{index}", container


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# --- the node that the author chose ----------------------------------------------------------------------------------


class _Term(msgspec.Struct, rename="camel"):
    match_expressions: list[dict[str, Any]] = []
    match_fields: list[dict[str, Any]] = []


class _Required(msgspec.Struct, rename="camel"):
    node_selector_terms: list[_Term] = []


class _NodeAffinity(msgspec.Struct):
    required: _Required | None = msgspec.field(default=None, name=_REQUIRED)


class _Affinity(msgspec.Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


def _held_to_node(spec: Mapping[str, Any]) -> Iterator[Operation]:
    node = spec.get("nodeName", "")
    if not node:
        return
    affinity = spec.get("affinity") or {}
    try:
        msgspec.convert(affinity, _Affinity)
    except msgspec.ValidationError as error:
        raise MalformedReviewError(f"object, affinity: {error}") from None
    yield {"op": "add", "path": "/spec/affinity", "value": _with_node(affinity, node)}
    yield {"op": "remove", "path": "/spec/nodeName"}


def _with_node(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """The affinity, narrowed to a node: terms are alternatives, so every one of them is."""
    of_nodes = affinity.get("nodeAffinity") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    if required := of_nodes.get(_REQUIRED):
        terms = [_and(term, field) for term in required.get("nodeSelectorTerms", [])]
    return {**affinity, "nodeAffinity": {**of_nodes, _REQUIRED: {**(required or {}), "nodeSelectorTerms": terms}}}


def _and(term: Mapping[str, Any], field: Mapping[str, Any]) -> dict[str, Any]:
    """An empty term matches no node, and must not begin to."""
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return dict(term)
    return {**term, "matchFields": [*term.get("matchFields", []), field]}


# --- scheduler and gate ----------------------------------------------------------------------------------------------


def _scheduled_by(pod: Pod, scheduler_name: str) -> Iterator[Operation]:
    """Who names another scheduler means it; it may have our extender too."""
    if pod.spec.scheduler_name in {"", DEFAULT_SCHEDULER} and pod.spec.scheduler_name != scheduler_name:
        yield {"op": "add", "path": "/spec/schedulerName", "value": scheduler_name}


def _gated(spec: Mapping[str, Any], *, names: Names) -> Iterator[Operation]:
    gate = {"name": names.gate}
    gates = spec.get("schedulingGates", [])
    if not gates:
        yield {"op": "add", "path": "/spec/schedulingGates", "value": [gate]}
    elif gate not in gates:
        yield {"op": "add", "path": "/spec/schedulingGates/-", "value": gate}
