"""A pod in one row: what a person wants to know first, above all why it does not run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .store import Json


def pod_row(pod: Json) -> list[Any]:
    """Give name, ready, state, restarts, and for the wide form address, node, nominated node and readiness gates."""
    spec, status = pod["spec"], pod.get("status", {})
    apps = status.get("containerStatuses", [])
    sidecars = {one["name"] for one in spec.get("initContainers", []) if one.get("restartPolicy") == "Always"}
    serving = [*apps, *(one for one in status.get("initContainerStatuses", []) if one.get("name") in sidecars)]
    ready = sum(1 for one in serving if one.get("ready"))
    gates = spec.get("readinessGates", [])
    return [
        pod["metadata"]["name"],
        f"{ready}/{len(spec['containers']) + len(sidecars)}",
        _state(pod),
        str(sum(int(one.get("restartCount", 0)) for one in serving)),
        status.get("podIP", "<none>"),
        spec.get("nodeName", "<none>"),
        status.get("nominatedNodeName", "<none>"),
        f"{_fulfilled(status, gates)}/{len(gates)}" if gates else "<none>",
    ]


def _fulfilled(status: Json, gates: list[Json]) -> int:
    true = {one.get("type") for one in status.get("conditions", []) if one.get("status") == "True"}
    return sum(1 for gate in gates if gate.get("conditionType") in true)


def _state(pod: Json) -> str:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    initialising = _init_state(pod)
    if initialising:
        return initialising
    said = status.get("reason") or _container_state(status.get("containerStatuses", []))
    if said:
        return str(said)
    if any(one.get("reason") == "SchedulingGated" for one in status.get("conditions", [])):
        return "SchedulingGated"
    return str(status.get("phase", "Unknown"))


def _init_state(pod: Json) -> str:
    statuses = pod.get("status", {}).get("initContainerStatuses", [])
    done = 0
    for one in statuses:
        state = one.get("state", {})
        ended = state.get("terminated")
        if (ended is not None and ended.get("exitCode") == 0) or one.get("started"):
            done += 1
            continue
        reason = _reason(state)
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{done}/{len(pod['spec'].get('initContainers', []))}"
    return ""


def _container_state(statuses: list[Json]) -> str:
    for one in reversed(statuses):
        if reason := _reason(one.get("state", {})):
            return reason
    return ""


def _reason(state: Json) -> str:
    if waiting := state.get("waiting"):
        return str(waiting.get("reason", ""))
    if (ended := state.get("terminated")) is not None:
        return str(ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}")
    return ""
