"""Pods as tests write them: short, with what a cluster without images, network and time to spare needs filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.harness.api import Json
from cluster.harness.images import BUSYBOX_IMAGE

# A scheduler that does not exist: the pod waits until the test binds it.
BY_HAND = "by-hand"


def container(
    command: Sequence[str] | None = None,
    *,
    name: str = "main",
    image: str = BUSYBOX_IMAGE,
    limits: Mapping[str, str | int] | None = None,
    env: Mapping[str, str] | None = None,
    sidecar: bool = False,
) -> Json:
    """A container, with the image's own command if none is given; a sidecar belongs among the init containers."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": list(command or ()),
        "resources": {"limits": {resource: str(amount) for resource, amount in (limits or {}).items()}},
        "env": [{"name": variable, "value": value} for variable, value in (env or {}).items()],
        **({"restartPolicy": "Always"} if sidecar else {}),
    }


def shell(script: str, **settings: Any) -> Json:
    """A container that runs a shell script; the settings are those of `container`."""
    return container(["sh", "-c", script], **settings)


def stays(before: str = "true", **settings: object) -> Json:
    """A container that does something and then stays until it is told to end, which it does at once."""
    return shell(f"{before}; trap exit TERM; sleep 100000 & wait", **settings)


def pod(
    name: str,
    *containers: Json,
    namespace: str,
    init_containers: Sequence[Json] = (),
    node: str = "",
    scheduler: str = "",
    restart: str = "Never",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: object,
) -> Json:
    """A pod on the host's network (there is no other here) that ends within a second when it is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
        },
        "spec": {
            "hostNetwork": True,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,
            "containers": list(containers),
            "initContainers": list(init_containers),
            **({"nodeName": node} if node else {}),
            **({"schedulerName": scheduler} if scheduler else {}),
            **spec,
        },
    }


def has_ended(pod: Json, container: str) -> bool:
    """Whether the container has, and is not started anew."""
    status = pod.get("status", {})
    statuses = (*status.get("containerStatuses", []), *status.get("initContainerStatuses", []))
    return any(each["name"] == container and "terminated" in each["state"] for each in statuses)


def read_log(folder: Path) -> str:
    """The output of a container's latest run, from the folder in which the runtime keeps its log files."""
    runs = sorted(folder.glob("*.log"), key=lambda file: int(file.name.split(".")[0]))
    if not runs:
        return ""
    text = ""
    for line in runs[-1].read_text(errors="replace").splitlines():
        # "<time> <stdout|stderr> <F|P> <text>": P is a part of a line that goes on in the next.
        _time, _stream, tag, *rest = line.split(" ", 3)
        text += "".join(rest) + ("\n" if tag == "F" else "")
    return text


def gates(made: Json) -> list[str]:
    """What a pod waits behind."""
    return [each["name"] for each in made["spec"].get("schedulingGates", [])]
