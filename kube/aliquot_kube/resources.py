"""Which kinds of objects we speak of, and the paths they live under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

from aliquot_core.disruptions import PodDisruptionBudget
from aliquot_core.names import Names
from aliquot_core.objects import (
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    Queue,
    Secret,
    WebhookConfiguration,
)


class HasMetadata(Protocol):
    """Any Kubernetes object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Identity, labels, annotations."""
        ...


T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[T]):
    """One kind of object: its place in the API and the struct that it is decoded into."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """Path of all objects, or of a namespace's."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and self.namespaced else ""
        return f"{root}{scope}/{self.plural}"

    def path(self, *, name: str, namespace: str = "", subresource: str = "") -> str:
        """Path of one object, or of a part of it."""
        tail = f"/{subresource}" if subresource else ""
        return f"{self.collection(namespace)}/{quote(name, safe='')}{tail}"


PODS = Resource(group="", version="v1", plural="pods", kind="Pod", type=Pod)
NODES = Resource(group="", version="v1", plural="nodes", kind="Node", type=Node, namespaced=False)
NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", type=Namespace, namespaced=False)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", type=Lease)
EVENTS = Resource(group="events.k8s.io", version="v1", plural="events", kind="Event", type=Event)
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", type=ConfigMap)
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", type=Secret)
DISRUPTION_BUDGETS = Resource(
    group="policy", version="v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget", type=PodDisruptionBudget
)
MUTATING_WEBHOOKS = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    type=WebhookConfiguration,
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    type=WebhookConfiguration,
    namespaced=False,
)


def queues_of(names: Names) -> Resource[Queue]:
    """Our own resource, which lies in the group that the settings name; where it is not installed, asking is a 404."""
    return Resource(group=names.domain, version="v1alpha1", plural="queues", kind="Queue", type=Queue, namespaced=False)
