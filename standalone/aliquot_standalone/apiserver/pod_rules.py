"""The rules of pods: what is filled in, which part each write touches, how a deletion waits for the kubelet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import amounts, pod_shapes, pod_validation, quantities
from .rules import Rules

if TYPE_CHECKING:
    from .failures import Cause
    from .store import Json

_DEFAULT_GRACE = 30
# Thirty years: any 64-bit number may be written, and of most of them no calendar knows the day.
_LONGEST_GRACE = 10**9
_COUNTED_FOR_QUALITY = ("cpu", "memory")
# What a cluster adds so that a pod leaves a dead node after five minutes.
_DEAD_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodRules(Rules):
    """Pods: defaults as a cluster fills them, a spec that hardly changes, deletion in two steps."""

    shape = pod_shapes.Pod
    fields = (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    )

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Fill defaults; a new pod is pending, whatever its creator says."""
        spec = obj.setdefault("spec", {})
        _fill_spec(spec)
        obj["status"] = {"phase": "Pending", "qosClass": quality_of(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [_gated_condition()]

    def prepare_update(self, new: Json, old: Json) -> None:
        """Fill what the writer left out, so that only real changes count as changes."""
        super().prepare_update(new, old)
        _fill_spec(new.setdefault("spec", {}))
        tolerate_dead_nodes(new["spec"])

    def prepare_status(self, new: Json, old: Json) -> None:
        """Keep the spec and the owners; other metadata may be edited through the status."""
        super().prepare_status(new, old)
        owners = old["metadata"].get("ownerReferences")
        new["metadata"].pop("ownerReferences", None)
        if owners:
            new["metadata"]["ownerReferences"] = owners
        new.setdefault("status", {}).setdefault("qosClass", old.get("status", {}).get("qosClass", "BestEffort"))

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata and spec."""
        return super().causes(obj) + pod_validation.causes(obj)

    def update_causes(self, new: Json, old: Json) -> list[Cause]:
        """Refuse changes of what a pod keeps for life."""
        return super().update_causes(new, old) + pod_validation.update_causes(new, old)

    def grace(self, obj: Json, requested: int | None) -> int:
        """Wait for the kubelet only where one runs the pod."""
        if not obj["spec"].get("nodeName") or obj["status"].get("phase") in {"Succeeded", "Failed"}:
            return 0
        asked = obj["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if requested is None else requested
        return min(max(int(asked), 0), _LONGEST_GRACE)


def _gated_condition() -> Json:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _fill_spec(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    if spec.setdefault("terminationGracePeriodSeconds", _DEFAULT_GRACE) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("enableServiceLinks", True)
    for part in ("initContainers", "containers"):
        for container in spec.get(part, []):
            _fill_container(container)
    _fill_of_all(spec)


def _fill_of_all(spec: Json) -> None:
    """Where a pod limits all its containers together it asks for their sum, or for its limit if they ask nothing."""
    resources = spec.get("resources", {})
    if limits := resources.get("limits"):
        sums = amounts.of_containers(spec, "requests")
        requests = resources.setdefault("requests", {})
        for name in ("cpu", "memory"):
            if name in sums:
                requests.setdefault(name, amounts.written(sums[name], like="Mi" if name == "memory" else ""))
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _fill_container(container: Json) -> None:
    image = container.get("image", "")
    newest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    container.setdefault("imagePullPolicy", "Always" if newest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", []):
        port.setdefault("protocol", "TCP")
    resources = container.setdefault("resources", {})
    if limits := resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def tolerate_dead_nodes(spec: Json) -> None:
    """Let the pod stay five minutes on a node that died, as the default admission of a cluster does."""
    tolerations = spec.setdefault("tolerations", [])
    for taint in _DEAD_NODE_TAINTS:
        if not any(_tolerates(one, taint) for one in tolerations):
            tolerations.append({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _tolerates(toleration: Json, taint: str) -> bool:
    about = toleration.get("key", "") == taint or not toleration.get("key")
    return about and toleration.get("effect", "NoExecute") == "NoExecute"


def quality_of(spec: Json) -> str:
    """Give the quality-of-service class: by CPU and memory of all containers, as Kubernetes has it."""
    containers = [*spec.get("containers", []), *spec.get("initContainers", [])]
    asked = [_counted(one.get("resources", {})) for one in containers]
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    exact = all(len(limits) == len(_COUNTED_FOR_QUALITY) and requests == limits for requests, limits in asked)
    return "Guaranteed" if exact else "Burstable"


def _counted(resources: Json) -> tuple[dict[str, Any], dict[str, Any]]:
    requests, limits = (
        {
            name: quantities.parse(str(amount))
            for name, amount in resources.get(part, {}).items()
            if name in _COUNTED_FOR_QUALITY and quantities.parse(str(amount))
        }
        for part in ("requests", "limits")
    )
    return requests, limits
