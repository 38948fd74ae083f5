"""Pods that reach for what only a grant gives: our CDI devices, or the variables that tell a container its slice.

A runtime gives a CDI device to any container that names it, and there are plugins of runtimes that take such names
from a pod's annotations. A slice's name holds a random token that only root can read, so a pod can hardly name one;
that it names our kind at all shows what it is after, and it must not start.

Variables are another matter: those of the CDI spec win over the pod's own (run on a real kubelet), so a pod
that sets them gets what it holds all the same, and only deserves a warning.
"""

from __future__ import annotations

from enum import StrEnum

from aliquot_core.names import Names
from aliquot_core.objects import Pod

OUR_PREFIX = "ALIQUOT_"


class Variable(StrEnum):
    """The variables that every container with a slice reads."""

    GPUS = "ALIQUOT_GPUS"
    COMPUTE = "ALIQUOT_COMPUTE"
    COMPUTE_LIMIT = "ALIQUOT_COMPUTE_LIMIT"
    MEMORY = "ALIQUOT_MEMORY"
    SLICES = "ALIQUOT_SLICES"
    ISOLATION = "ALIQUOT_ISOLATION"
    CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
    CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
    NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"


def names_our_device(pod: Pod, *, names: Names) -> list[str]:
    """The annotations by which a pod names devices of our kind, each as `key: device`."""
    return [
        f"{key}: {device}"
        for key, value in sorted(pod.metadata.annotations.items())
        if _asks_for_devices(key)
        for device in _of_kind(value, kind=names.cdi_kind)
    ]


def sets_our_variables(pod: Pod, *, names: Names) -> list[str]:
    """The variables that containers with a slice set in vain, each as `container: variable`.

    A container without one is told nothing by us: NVIDIA's variable counts there, as a way round.
    """
    ours, resources = {variable.value for variable in Variable}, names.resources()
    return [
        f"{container.name}: {entry.name}"
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if not container.resources.limits.keys().isdisjoint(resources)
        for entry in container.env
        if entry.name in ours or entry.name.startswith(OUR_PREFIX)
    ]


def _asks_for_devices(key: str) -> bool:
    """Whether a runtime or one of its plugins may read device names here: `cdi.k8s.io`, `cdi-devices.nri.io`."""
    prefix, slash, _ = key.partition("/")
    return bool(slash) and "cdi" in prefix.lower().replace("-", ".").split(".")


def _of_kind(value: str, *, kind: str) -> list[str]:
    """Device names of that kind in a comma-separated list or in YAML, quoted or not."""
    separators = str.maketrans(dict.fromkeys(",\"'[]{}\n\t", " "))
    return [word for word in value.translate(separators).split() if word.startswith(f"{kind}=")]
