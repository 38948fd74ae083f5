"""What a cluster's admission does to new objects, as far as it needs other objects: namespaces, priority classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .catalogue import NAMESPACES, PODS, PRIORITY_CLASSES
from .failures import forbidden, not_found
from .pod_rules import tolerate_dead_nodes

if TYPE_CHECKING:
    from .catalogue import Resource
    from .store import Json, Store


class Admission:
    """Admits new objects, or says why not."""

    def __init__(self, *, store: Store) -> None:
        self._store = store

    def admit_new(self, obj: Json, *, resource: Resource) -> None:
        """Check that the namespace takes new objects; give a pod its priority and account."""
        if resource.namespaced:
            self._check_namespace(obj, resource=resource)
        if resource.table == PODS.table:
            spec = obj["spec"]
            account = spec.setdefault("serviceAccountName", "default")
            spec.setdefault("serviceAccount", account)
            tolerate_dead_nodes(spec)
            self._set_priority(obj)

    def _check_namespace(self, obj: Json, *, resource: Resource) -> None:
        namespace = obj["metadata"]["namespace"]
        found = self._store.get(NAMESPACES.table, namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if found.fields["status.phase"] == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(resource, obj["metadata"].get("name", ""), why)

    def _set_priority(self, pod: Json) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName", "") or self._default_class()
        if not name:
            chosen = {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}
        elif (found := self._store.get(PRIORITY_CLASSES.table, name)) is not None:
            chosen = found.decode()
            spec["priorityClassName"] = name
        else:
            raise forbidden(PODS, pod["metadata"].get("name", ""), f"no PriorityClass with name {name} was found")
        wanted = spec.get("priority")
        if wanted is not None and wanted != chosen["value"]:
            why = f"the integer value of priority ({wanted}) must not be provided in pod spec; it would be"
            raise forbidden(PODS, pod["metadata"].get("name", ""), f"{why} {chosen['value']}")
        spec["priority"] = chosen["value"]
        spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))

    def _default_class(self) -> str:
        for one in self._store.snapshot(PRIORITY_CLASSES.table):
            if b'"globalDefault":true' in one.raw and one.decode().get("globalDefault"):
                return one.fields["metadata.name"]
        return ""
