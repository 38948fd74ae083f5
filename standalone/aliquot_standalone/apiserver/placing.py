"""The two writes that decide about a pod's place: binding it to a node, and evicting it. Pure.

A binding carries metadata: its annotations and labels reach the pod in the same write as the node's name, overwriting
values of the same key and keeping the others. That is how a grant and a place are one atomic write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aliquot_core.instants import second_time

from . import shapes
from .catalogue import Resource
from .failures import bad_request, conflict, invalid, required, unsupported
from .metadata import check_preconditions
from .shapes import check_shape
from .terms import DeleteOptions, Target, Write

if TYPE_CHECKING:
    from .store import Json
    from .verbs import Api


PROPAGATIONS = ("Background", "Foreground", "Orphan")


class _NodeReference(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Binding(msgspec.Struct, frozen=True, kw_only=True):
    metadata: shapes.Metadata = shapes.Metadata()
    target: _NodeReference = _NodeReference()


class _Preconditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _DeleteOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    grace_period_seconds: int | None = None
    preconditions: _Preconditions = _Preconditions()
    dry_run: list[str] = []
    propagation_policy: str = ""
    orphan_dependents: bool = False


class _Eviction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: shapes.Metadata = shapes.Metadata()
    delete_options: _DeleteOptions = _DeleteOptions()


def read_delete_options(body: Any, *, kind: str = "DeleteOptions") -> DeleteOptions:
    """Read how an object is to go from a request's body."""
    try:
        read = msgspec.convert(body, _DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"{kind} cannot be read: {error}") from error
    return DeleteOptions(
        grace=read.grace_period_seconds,
        uid=read.preconditions.uid,
        version=read.preconditions.resource_version,
        dry_run="All" in read.dry_run,
        propagation=_propagation(read),
    )


def _propagation(read: _DeleteOptions) -> str:
    said = read.propagation_policy or ("Orphan" if read.orphan_dependents else "Background")
    if said not in PROPAGATIONS:
        options = Resource(group="meta.k8s.io", plural="", singular="", kind="DeleteOptions")
        raise invalid(options, "", [unsupported("propagationPolicy", said, PROPAGATIONS)])
    return said


def bind(api: Api, target: Target, body: Json, *, now: float, dry_run: bool = False) -> None:
    """Give a pod its node, once, together with the binding's annotations and labels."""
    check_shape(body, _Binding, kind="Binding")
    wanted = body.get("target", {})
    causes = [] if wanted.get("name") else [required("target.name")]
    if wanted.get("kind", "") not in {"", "Node"}:
        causes.append(unsupported("target.kind", wanted["kind"], ("Node", "<empty>")))
    if causes:
        raise invalid(msgspec.structs.replace(target.resource, kind="Binding"), target.name, causes)

    def place(pod: Json) -> Json:
        return _placed(pod, body, target=target, now=now)

    api.rewrite(target, place, now=now, dry_run=dry_run)


def _placed(pod: Json, binding: Json, *, target: Target, now: float) -> Json:
    meta, node = binding.get("metadata", {}), binding["target"]["name"]
    check_preconditions(meta, old=pod, resource=target.resource)
    refusal = _why_not(pod)
    if refusal:
        raise conflict(target.resource, target.name, refusal, subresource="binding")
    pod["spec"]["nodeName"] = node
    for part in ("annotations", "labels"):
        if meta.get(part):
            pod["metadata"].setdefault(part, {}).update(meta[part])
    _mark(pod, kind="PodScheduled", now=now)
    return pod


def _why_not(pod: Json) -> str:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _mark(pod: Json, *, kind: str, now: float, reason: str = "", message: str = "") -> None:
    conditions = pod["status"].setdefault("conditions", [])
    condition = {"type": kind, "status": "True", "lastTransitionTime": second_time(now)}
    if reason:
        condition |= {"reason": reason, "message": message}
    for index, one in enumerate(conditions):
        if one.get("type") == kind:
            conditions[index] = condition if one.get("status") != "True" else one
            return
    conditions.append(condition)


def evict(api: Api, target: Target, body: Json, *, now: float, dry_run: bool = False) -> Write:
    """Say that a pod is evicted, then delete it with its grace. Disruption budgets are not kept here."""
    check_shape(body, _Eviction, kind="Eviction")
    options = read_delete_options(body.get("deleteOptions", {}))
    options = msgspec.structs.replace(options, dry_run=options.dry_run or dry_run)
    pod = api.get(target).decode()

    def disrupt(current: Json) -> Json:
        message = "Eviction API: evicting"
        _mark(current, kind="DisruptionTarget", now=now, reason="EvictionByEvictionAPI", message=message)
        return current

    check_preconditions({"uid": options.uid, "resourceVersion": options.version}, old=pod, resource=target.resource)
    if pod["status"].get("phase") not in {"Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]:
        api.rewrite(target, disrupt, now=now, dry_run=options.dry_run)
    return api.remove(target, msgspec.structs.replace(options, version=""), now=now)
