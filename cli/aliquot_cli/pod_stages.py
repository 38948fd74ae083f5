"""How far a pod has come, in a word and a sentence, as its own object tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import ContainerStatus, Pod

# What says nothing to a person: it is so for a moment, or the stage says it already.
_PASSING = frozenset({"ContainerCreating", "PodInitializing", "SchedulingGated"})


# What the kubelet says where the kernel killed for memory: 137 alone would have somebody look for who did it.
STARVED = "OOMKilled"


class Stage(StrEnum):
    """The stations of a pod's way."""

    WAITING = "waiting"
    PLACING = "placing"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    FAILED = "failed"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A station, and what is to say there: `word` changes seldom, the sentence holds the numbers of the moment."""

    stage: Stage
    word: str = ""
    why: str = ""


def progress_of(pod: Pod, *, names: Names) -> Progress:
    """How far a pod has come, and what keeps it there or has ended it."""
    stage = _stage(pod, names=names)
    match stage:
        case Stage.WAITING | Stage.PLACING:
            word, why = _unplaced(pod, names=names)
        case Stage.STARTING:
            word, why = _unstarted(pod)
        case Stage.FAILED:
            word, why = _failed(pod)
        case _:
            word, why = "", ""
    return Progress(stage=stage, word=word, why=why)


def _stage(pod: Pod, *, names: Names) -> Stage:
    if pod.ended:
        return Stage.DONE if pod.status.phase == "Succeeded" else Stage.FAILED
    if pod.metadata.deletion_timestamp:
        return Stage.STOPPING
    if pod.status.phase == "Running":
        return Stage.RUNNING
    if pod.spec.node_name:
        return Stage.STARTING
    return Stage.WAITING if pod.spec.scheduling_gates or _sent_back(pod, names=names) else Stage.PLACING


def _sent_back(pod: Pod, *, names: Names) -> bool:
    """Whether its turn led to nothing: a gate that was lifted can't come back, but the condition says it."""
    return any(one.type == names.admitted and one.status == "False" for one in pod.status.conditions)


def _unplaced(pod: Pod, *, names: Names) -> tuple[str, str]:
    foreign = [gate.name for gate in pod.spec.scheduling_gates if gate.name != names.gate]
    if foreign:
        return "Gated", f"it waits behind gates that are not Aliquot's: {', '.join(foreign)}"
    for kind in (names.admitted, "PodScheduled"):
        for one in pod.status.conditions:
            if one.type == kind and one.status == "False" and one.reason not in _PASSING:
                return one.reason, one.message
    return "", ""


def _unstarted(pod: Pod) -> tuple[str, str]:
    for waiting in _states(pod, "waiting"):
        reason = str(waiting.get("reason", ""))
        if reason not in _PASSING:
            return reason, str(waiting.get("message") or reason)
    return "", ""


def _failed(pod: Pod) -> tuple[str, str]:
    if pod.status.reason or pod.status.message:
        return pod.status.reason, pod.status.message or pod.status.reason
    if any(ended.get("reason") == STARVED for ended in _states(pod, "terminated")):
        return STARVED, "it was killed for more memory than its limit"
    code = exit_code(pod)
    return "Error", "" if code is None else f"exit code {code}"


def exit_code(pod: Pod) -> int | None:
    """The first code of its app containers that is not 0, else 0; None while one of them has not ended."""
    codes = [_code(status) for status in pod.status.container_statuses]
    if not codes or None in codes:
        return None
    return next((code for code in codes if code), 0)


def has_started(pod: Pod) -> bool:
    """Whether a container has begun to run, so that there is something to read."""
    return any(True for kind in ("running", "terminated") for _ in _states(pod, kind))


def _code(status: ContainerStatus) -> int | None:
    ended = status.state.get("terminated")
    return int(ended.get("exitCode", 0)) if ended is not None else None


def _states(pod: Pod, kind: str) -> Iterator[dict[str, Any]]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return (one.state[kind] for one in statuses if one.state.get(kind) is not None)
