"""A pod's status as the API server is told of it. Pure: (spec, lives, holdings) → JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_core.objects import Container, Pod
from aliquot_standalone.kubelet.lifecycle import (
    Exited,
    Life,
    Lives,
    Running,
    Starting,
    back_off,
    is_sidecar,
    phase,
)
from aliquot_standalone.kubelet.settings import Settings

# (container) → resource → (id, healthy): what the pod's status says of its devices from Kubernetes 1.36 on.
DevicesOf = Callable[[str], Mapping[str, Sequence[tuple[str, bool]]]]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the status is made of."""

    pod: Pod
    lives: Lives
    started_at: float
    now: float
    going: bool = False
    host_ip: str = "127.0.0.1"
    # What was said of each condition last, and since when it holds: the pod's own may be older, while a write of ours
    # is under way, and two times that take turns would be two writes that bring each other about for ever.
    said: Mapping[str, tuple[str, str]] = {}


def pod_status(report: Report, *, devices_of: DevicesOf, settings: Settings) -> dict[str, Any]:
    """The whole status, conditions of ours only."""
    pod, lives = report.pod, report.lives
    word = phase(pod, lives, going=report.going, settings=settings)

    def one(container: Container) -> dict[str, Any]:
        return _container(container, report, devices_of(container.name), settings)

    return {
        "phase": word,
        "startTime": second_time(report.started_at),
        "hostIP": report.host_ip,
        "podIP": report.host_ip,
        "conditions": _conditions(report, word),
        "initContainerStatuses": [one(container) for container in pod.spec.init_containers],
        "containerStatuses": [one(container) for container in pod.spec.containers],
    }


def _container(
    container: Container,
    report: Report,
    devices: Mapping[str, Sequence[tuple[str, bool]]],
    settings: Settings,
) -> dict[str, Any]:
    life = report.lives.get(container.name, Life())
    now_state, last = _states(life, report, settings)
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": max(life.starts - 1, 0),
        "ready": _is_ready(container, life, report.pod),
        "started": isinstance(life.state, Running),
        "state": now_state,
        "lastState": last,
    }
    if (process := _process_id(life)) is not None:
        status["containerID"] = f"process://{process}"
    if devices:
        status["allocatedResourcesStatus"] = [_health(name, ids) for name, ids in devices.items()]
    return status


def _states(life: Life, report: Report, settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """`state` and `lastState`: one that ended and is to start again is waiting."""
    last = {"terminated": _terminated(life.last)} if life.last else {}
    state = life.state
    if isinstance(state, Running):
        return {"running": {"startedAt": second_time(state.since)}}, last
    if isinstance(state, Exited):
        pause = state.until + back_off(life.ends, settings) - report.now
        if _restarts(life, report) and pause > 0 and not report.going:
            waiting = {"reason": "CrashLoopBackOff", "message": f"back-off, {pause:.0f} s more"}
            return {"waiting": waiting}, {"terminated": _terminated(state)}
        return {"terminated": _terminated(state)}, last
    if isinstance(state, Starting):
        return {"waiting": {"reason": "ContainerCreating"}}, last
    waiting = {"reason": state.reason}
    if state.message:
        waiting["message"] = state.message
    return {"waiting": waiting}, last


def _restarts(life: Life, report: Report) -> bool:
    if not isinstance(life.state, Exited):
        return False
    policy = report.pod.spec.restart_policy or "Always"
    return policy == "Always" or (policy == "OnFailure" and life.state.code != 0)


def _terminated(ended: Exited) -> dict[str, Any]:
    return {
        "exitCode": ended.code,
        "reason": ended.reason,
        "startedAt": second_time(ended.since),
        "finishedAt": second_time(ended.until),
        "containerID": f"process://{ended.id}",
    }


def _process_id(life: Life) -> str | None:
    if isinstance(life.state, Running):
        return life.state.process.id
    ended = life.state if isinstance(life.state, Exited) else life.last
    return ended.id if ended else None


def _is_ready(container: Container, life: Life, pod: Pod) -> bool:
    ordinary_init = container in pod.spec.init_containers and not is_sidecar(container)
    if ordinary_init:
        return isinstance(life.state, Exited) and life.state.code == 0
    return isinstance(life.state, Running)


def _health(resource: str, ids: Sequence[tuple[str, bool]]) -> dict[str, Any]:
    return {
        "name": resource,
        "resources": [{"resourceID": one, "health": "Healthy" if good else "Unhealthy"} for one, good in ids],
    }


def _conditions(report: Report, word: str) -> list[dict[str, Any]]:
    pod, lives = report.pod, report.lives
    initialized = all(_init_done(container, lives) for container in pod.spec.init_containers)
    unready = [
        container.name
        for container in [*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers]
        if not isinstance(lives.get(container.name, Life()).state, Running)
    ]
    completed = "PodCompleted" if word == "Succeeded" else ""
    message = f"containers not ready: {', '.join(unready)}" if unready and not completed else ""
    why = completed or ("ContainersNotReady" if unready else "")
    return [
        _condition(report, "PodReadyToStartContainers", holds=word in {"Pending", "Running"}),
        _condition(report, "Initialized", holds=initialized, reason="" if initialized else "ContainersNotInitialized"),
        _condition(report, "Ready", holds=not unready, reason=why, message=message),
        _condition(report, "ContainersReady", holds=not unready, reason=why, message=message),
    ]


def _init_done(container: Container, lives: Lives) -> bool:
    life = lives.get(container.name, Life())
    if is_sidecar(container):
        return life.starts > 0
    return isinstance(life.state, Exited) and life.state.code == 0


def _condition(report: Report, kind: str, *, holds: bool, reason: str = "", message: str = "") -> dict[str, Any]:
    """One condition; the time of its last change is kept while it does not change."""
    status = "True" if holds else "False"
    condition: dict[str, Any] = {
        "type": kind,
        "status": status,
        "lastTransitionTime": _since(report, kind, status) or second_time(report.now),
    }
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _since(report: Report, kind: str, status: str) -> str | None:
    of_the_pod = {one.type: (one.status, one.last_transition_time) for one in report.pod.status.conditions}
    before = report.said.get(kind) or of_the_pod.get(kind)
    return before[1] if before and before[0] == status else None
