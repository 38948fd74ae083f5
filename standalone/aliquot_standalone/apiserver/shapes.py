"""The JSON types of the fields that the server itself reads, so that its rules need not ask what they hold.

`null` counts as absent (it is taken out before). Fields not named here pass as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from .failures import bad_request
from .quantities import PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable

Quantities = dict[str, Annotated[str, msgspec.Meta(pattern=PATTERN)] | int | float]


class _Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Common settings."""


class OwnerReference(_Shape, frozen=True):
    """Who created an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class Metadata(_Shape, frozen=True):
    """What every object has."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class AnyObject(_Shape, frozen=True):
    """An object of a kind without rules of its own."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()


class EnvVar(_Shape, frozen=True):
    """A variable of a container."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] = {}


class Resources(_Shape, frozen=True):
    """What a container asks for."""

    limits: Quantities = {}
    requests: Quantities = {}


class VolumeMount(_Shape, frozen=True):
    """Where a volume appears in a container."""

    name: str = ""
    mount_path: str = ""


class Port(_Shape, frozen=True):
    """A port of a container."""

    name: str = ""
    container_port: int = 0
    protocol: str = ""


class Container(_Shape, frozen=True):
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


class Gate(_Shape, frozen=True):
    """Why a pod is not to be scheduled yet."""

    name: str = ""


class Toleration(_Shape, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int = 0


class Named(_Shape, frozen=True):
    """Anything of which only the name is read."""

    name: str = ""


class SelectorTerm(_Shape, frozen=True):
    """One way in which a node may fit."""

    match_expressions: list[dict[str, Any]] = []
    match_fields: list[dict[str, Any]] = []


class RequiredNodes(_Shape, frozen=True):
    """All ways in which a node may fit."""

    node_selector_terms: list[SelectorTerm] = []


class NodeAffinity(_Shape, frozen=True):
    """Which nodes a pod must have."""

    required: RequiredNodes = msgspec.field(
        default=RequiredNodes(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Shape, frozen=True):
    """Where a pod wants to be; of this only what must be of nodes is read."""

    node_affinity: NodeAffinity = NodeAffinity()


class ReadinessGate(_Shape, frozen=True):
    """A condition that a pod waits for before it counts as ready."""

    condition_type: str = ""


class PodSpec(_Shape, frozen=True):
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
    overhead: Quantities = {}


class Condition(_Shape, frozen=True):
    """One line of conditions."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class Waiting(_Shape, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""


class Terminated(_Shape, frozen=True):
    """How a container ended."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(_Shape, frozen=True):
    """Where a container stands."""

    waiting: Waiting = Waiting()
    running: dict[str, Any] = {}
    terminated: Terminated = Terminated()


class ContainerStatus(_Shape, frozen=True):
    """How a container fares."""

    name: str = ""
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(_Shape, frozen=True):
    """How a pod fares."""

    phase: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    nominated_node_name: str = ""


class Pod(_Shape, frozen=True):
    """A pod."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(_Shape, frozen=True):
    """What keeps pods away."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_Shape, frozen=True):
    """What a node is told."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(_Shape, frozen=True):
    """What a node has."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []
    addresses: list[dict[str, str]] = []
    node_info: dict[str, Any] = {}


class Node(_Shape, frozen=True):
    """A node."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceSpec(_Shape, frozen=True):
    """What holds a namespace's deletion."""

    finalizers: list[str] = []


class NamespaceStatus(_Shape, frozen=True):
    """Whether it is going."""

    phase: str = ""


class Namespace(_Shape, frozen=True):
    """A namespace."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class LeaseSpec(_Shape, frozen=True):
    """Who holds a lease."""

    holder_identity: str = ""
    lease_duration_seconds: int = 1
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(_Shape, frozen=True):
    """A heart-beat or a claim to leadership."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


class Event(_Shape, frozen=True):
    """Something that happened to an object; the newer group's names are taken over before."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    involved_object: dict[str, str] = {}
    reason: str = ""
    message: str = ""
    type: str = ""
    source: dict[str, str] = {}
    count: int = 0
    first_timestamp: str = ""
    last_timestamp: str = ""
    event_time: str = ""
    reporting_component: str = ""
    series: dict[str, Any] = {}


class PriorityClass(_Shape, frozen=True):
    """A named priority."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class ResourceQuotaSpec(_Shape, frozen=True):
    """What a namespace may use."""

    hard: Quantities = {}


class ResourceQuota(_Shape, frozen=True):
    """A limit on a namespace."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()


class ConfigMap(_Shape, frozen=True):
    """Configuration by key."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool = False


def check_shape(obj: Any, shape: type[msgspec.Struct], *, kind: str) -> None:
    """Refuse an object one of whose fields has the wrong JSON type."""
    if misfit := misfit_of(obj, shape):
        raise bad_request(f"{kind} cannot be read: {misfit}")


def misfit_of(obj: Any, shape: type[msgspec.Struct]) -> str:
    """Say which field has the wrong JSON type, if one has."""
    try:
        msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def without_empty(obj: dict[str, Any], fields: Iterable[str]) -> None:
    """Take out maps and lists that are empty, where for the API that is the same as not there."""
    for field in fields:
        if field in obj and not obj[field]:
            del obj[field]


def without_nulls(value: Any) -> Any:
    """Take out what is null: for the API that is the same as not there."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return value
