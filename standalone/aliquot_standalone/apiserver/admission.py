"""Admission: what a new or changed object passes through before it is stored.

In a cluster's order: what the server fills in by other objects (namespace, account, priority), mutating webhooks, and
what the server fills in once more; then, of the finished object, validating webhooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import limit_ranges
from .catalogue import NAMESPACES, PODS, PRIORITY_CLASSES
from .failures import forbidden, not_found
from .kinds import rules_of
from .pod_rules import tolerate_dead_nodes
from .shapes import check_shape

if TYPE_CHECKING:
    from .acts import Act
    from .consulting import Asking
    from .store import Json, Store
    from .webhooks import Webhooks


class Admission:
    """Admits writes, or says why not."""

    def __init__(self, *, store: Store, webhooks: Webhooks) -> None:
        self._store = store
        self._webhooks = webhooks

    def mutate(self, act: Act, *, now: float) -> Asking[None]:
        """Fill in and change what is to be written: `act.obj` is another object afterwards."""
        if act.operation == "CREATE":
            self._fill_new(act)

        def again(act: Act) -> None:
            self._fill_again(act, now=now)

        yield from self._webhooks.mutate(act, again=again)

    def validate(self, act: Act) -> Asking[None]:
        """Refuse what may not be written so."""
        if act.operation == "CREATE" and act.resource.table == PODS.table:
            limit_ranges.check(self._store, act)
        yield from self._webhooks.validate(act)

    def _fill_again(self, act: Act, *, now: float) -> None:
        """After a webhook: the defaults, and all that is filled in from other objects."""
        obj, rules = act.fresh, rules_of(act.resource)
        check_shape(obj, rules.shape, kind=act.resource.kind)
        if act.operation == "CREATE":
            rules.prepare_new(obj, now=now)
            rules.tidy(obj)
            self._fill_new(act)

    def _fill_new(self, act: Act) -> None:
        self.check_namespace(act)
        if act.resource.table == PODS.table:
            spec = act.fresh["spec"]
            account = spec.setdefault("serviceAccountName", "default")
            spec.setdefault("serviceAccount", account)
            tolerate_dead_nodes(spec)
            self._set_priority(act.fresh)
            limit_ranges.fill_in(self._store, act)

    def check_namespace(self, act: Act) -> None:
        """Refuse what has no namespace, or one that is going."""
        if not act.resource.namespaced:
            return
        namespace = act.target.namespace
        found = self._store.get(NAMESPACES.table, namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if found.fields["status.phase"] == "Terminating":
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(act.resource, act.name, why)

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
