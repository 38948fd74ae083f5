"""Which kinds the embedded API server knows, and how the API names them."""

from __future__ import annotations

from typing import Any

import msgspec

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class PrinterColumn(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A column of a custom kind's table, as its definition has it."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What the definition of a custom kind says of its objects."""

    # An OpenAPI schema, structural as a cluster wants it.
    schema: dict[str, Any] = {}
    columns: tuple[PrinterColumn, ...] = ()


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One kind under one address of the API."""

    version: str = "v1"
    group: str = ""
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    # Whether metadata.generation counts the changes of the spec.
    generation: bool = False
    # A PUT on a name that is not there creates it (leases, events).
    create_on_update: bool = False
    # A PUT without resourceVersion overwrites; where not, it is refused (leases).
    unconditional_update: bool = True
    # DELETE answers with the object instead of a Status.
    returns_deleted: bool = False
    # Several addresses may show one table (events of both groups).
    stored_as: str = ""
    # Only of a custom kind.
    definition: Definition | None = None
    # What makes such objects work is no part of this server: to create one is refused.
    needs_cluster: bool = False

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name by which messages speak of it: `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def table(self) -> str:
        """Where its objects are kept."""
        return self.stored_as or self.qualified


PODS = Resource(
    plural="pods",
    singular="pod",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("status", "binding", "eviction", "log"),
    generation=True,
    returns_deleted=True,
)
NODES = Resource(
    plural="nodes", singular="node", kind="Node", namespaced=False, short_names=("no",), subresources=("status",)
)
NAMESPACES = Resource(
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status",),
)
EVENTS = Resource(plural="events", singular="event", kind="Event", short_names=("ev",), create_on_update=True)
NEW_EVENTS = Resource(
    group="events.k8s.io",
    plural="events",
    singular="event",
    kind="Event",
    short_names=("ev",),
    create_on_update=True,
    stored_as="events",
)
LEASES = Resource(
    group="coordination.k8s.io",
    plural="leases",
    singular="lease",
    kind="Lease",
    create_on_update=True,
    unconditional_update=False,
)
SERVICE_ACCOUNTS = Resource(
    plural="serviceaccounts",
    singular="serviceaccount",
    kind="ServiceAccount",
    short_names=("sa",),
    returns_deleted=True,
)
CONFIG_MAPS = Resource(plural="configmaps", singular="configmap", kind="ConfigMap", short_names=("cm",))
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io",
    plural="priorityclasses",
    singular="priorityclass",
    kind="PriorityClass",
    namespaced=False,
    short_names=("pc",),
)
RESOURCE_QUOTAS = Resource(
    plural="resourcequotas",
    singular="resourcequota",
    kind="ResourceQuota",
    short_names=("quota",),
    subresources=("status",),
    returns_deleted=True,
)
LIMIT_RANGES = Resource(plural="limitranges", singular="limitrange", kind="LimitRange", short_names=("limits",))
DEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    singular="customresourcedefinition",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    generation=True,
    returns_deleted=True,
)


class Catalogue:
    """The kinds of one server, found by their address; custom ones come and go with their definitions."""

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self._by_address = {(one.group, one.version, one.plural): one for one in resources}

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All kinds, in the order of registration."""
        return tuple(self._by_address.values())

    def add(self, resource: Resource) -> None:
        """Serve one more kind, or one as it is defined now."""
        self._by_address[resource.group, resource.version, resource.plural] = resource

    def drop(self, *, group: str, plural: str) -> None:
        """Serve a kind no more, in any version."""
        gone = [address for address in self._by_address if (address[0], address[2]) == (group, plural)]
        for address in gone:
            del self._by_address[address]

    def find(self, *, group: str, version: str, plural: str) -> Resource | None:
        """Give the kind under an address."""
        return self._by_address.get((group, version, plural))

    def namespaced(self) -> list[Resource]:
        """Give the kinds that lie in namespaces, each table once, under the address it is stored by."""
        return list({one.table: one for one in reversed(self.resources) if one.namespaced}.values())

    def groups(self) -> dict[str, list[str]]:
        """Give each named group with its versions, in the order of registration."""
        found: dict[str, list[str]] = {}
        for one in self.resources:
            versions = found.setdefault(one.group, [])
            if one.version not in versions:
                versions.append(one.version)
        found.pop("", None)
        return found

    def of_group(self, *, group: str, version: str) -> list[Resource]:
        """Give the kinds of one group and version."""
        return [one for one in self.resources if (one.group, one.version) == (group, version)]
