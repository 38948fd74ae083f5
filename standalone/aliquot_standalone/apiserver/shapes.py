"""The JSON types of the fields that the server itself reads, so that its rules need not ask what they hold.

`null` counts as absent (it is taken out before). Fields not named here pass as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from .failures import bad_request
from .quantities import PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable

Quantities = dict[str, Annotated[str, msgspec.Meta(pattern=PATTERN)] | int | float]


class Shape(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Common settings."""


class OwnerReference(Shape, frozen=True):
    """Who created an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class Metadata(Shape, frozen=True):
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
    managed_fields: list[dict[str, Any]] = []


class AnyObject(Shape, frozen=True):
    """An object of a kind without rules of its own."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()


class Condition(Shape, frozen=True):
    """One line of conditions."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class Taint(Shape, frozen=True):
    """What keeps pods away."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Shape, frozen=True):
    """What a node is told."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(Shape, frozen=True):
    """What a node has."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []
    addresses: list[dict[str, str]] = []
    node_info: dict[str, Any] = {}


class Node(Shape, frozen=True):
    """A node."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceSpec(Shape, frozen=True):
    """What holds a namespace's deletion."""

    finalizers: list[str] = []


class NamespaceStatus(Shape, frozen=True):
    """Whether it is going."""

    phase: str = ""


class Namespace(Shape, frozen=True):
    """A namespace."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class LeaseSpec(Shape, frozen=True):
    """Who holds a lease."""

    holder_identity: str = ""
    lease_duration_seconds: int = 1
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Shape, frozen=True):
    """A heart-beat or a claim to leadership."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


class Event(Shape, frozen=True):
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


class PriorityClass(Shape, frozen=True):
    """A named priority."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class ScopeRequirement(Shape, frozen=True):
    """Which pods a quota is about."""

    scope_name: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class ScopeSelector(Shape, frozen=True):
    """All of these must hold."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Shape, frozen=True):
    """What a namespace may use."""

    hard: Quantities = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class ResourceQuotaStatus(Shape, frozen=True):
    """What of it is used."""

    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(Shape, frozen=True):
    """A limit on a namespace."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class ConfigMap(Shape, frozen=True):
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
