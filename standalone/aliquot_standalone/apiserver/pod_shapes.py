"""The JSON types of a pod, as far as its rules and rows read it."""

# ruff: noqa: RUF012 - msgspec gives each struct its own copy; the base that says so stands in another module

from __future__ import annotations

from typing import Any

import msgspec

from .shapes import Condition, Metadata, Quantities, Shape


class EnvVar(Shape, frozen=True):
    """A variable of a container."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] = {}


class Resources(Shape, frozen=True):
    """What a container asks for, or a pod for all of its containers."""

    limits: Quantities = {}
    requests: Quantities = {}


class VolumeMount(Shape, frozen=True):
    """Where a volume appears in a container."""

    name: str = ""
    mount_path: str = ""


class Port(Shape, frozen=True):
    """A port of a container."""

    name: str = ""
    container_port: int = 0
    protocol: str = ""


class Container(Shape, frozen=True):
    """A container of any sort."""

    name: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[EnvVar] = []
    working_dir: str = ""
    resources: Resources = Resources()
    ports: list[Port] = []
    volume_mounts: list[VolumeMount] = []
    restart_policy: str = ""
    image_pull_policy: str = ""
    termination_message_path: str = ""
    termination_message_policy: str = ""


class Gate(Shape, frozen=True):
    """Why a pod is not to be scheduled yet."""

    name: str = ""


class Toleration(Shape, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int = 0


class Named(Shape, frozen=True):
    """Anything of which only the name is read."""

    name: str = ""


class SelectorTerm(Shape, frozen=True):
    """One way in which a node may fit."""

    match_expressions: list[dict[str, Any]] = []
    match_fields: list[dict[str, Any]] = []


class RequiredNodes(Shape, frozen=True):
    """All ways in which a node may fit."""

    node_selector_terms: list[SelectorTerm] = []


class NodeAffinity(Shape, frozen=True):
    """Which nodes a pod must have."""

    required: RequiredNodes = msgspec.field(
        default=RequiredNodes(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Shape, frozen=True):
    """Where a pod wants to be; of this only what must be of nodes is read."""

    node_affinity: NodeAffinity = NodeAffinity()


class ReadinessGate(Shape, frozen=True):
    """A condition that a pod waits for before it counts as ready."""

    condition_type: str = ""


class PodSpec(Shape, frozen=True):
    """What a pod asks for."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    ephemeral_containers: list[Container] = []
    volumes: list[Named] = []
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: list[Toleration] = []
    scheduling_gates: list[Gate] = []
    readiness_gates: list[ReadinessGate] = []
    scheduler_name: str = ""
    restart_policy: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    service_account_name: str = ""
    termination_grace_period_seconds: int = 0
    active_deadline_seconds: int = 1
    resources: Resources = Resources()
    overhead: Quantities = {}


class Waiting(Shape, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""


class Terminated(Shape, frozen=True):
    """How a container ended."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(Shape, frozen=True):
    """Where a container stands."""

    waiting: Waiting = Waiting()
    running: dict[str, Any] = {}
    terminated: Terminated = Terminated()


class ContainerStatus(Shape, frozen=True):
    """How a container fares."""

    name: str = ""
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(Shape, frozen=True):
    """How a pod fares."""

    phase: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    nominated_node_name: str = ""


class Pod(Shape, frozen=True):
    """A pod."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
