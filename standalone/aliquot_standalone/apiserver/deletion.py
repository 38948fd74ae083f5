"""How objects go: marked, waited for, removed; and namespaces, which go when all in them has gone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import metadata
from .catalogue import DEFINITIONS, NAMESPACES
from .failures import conflict, forbidden, not_found
from .kinds import rules_of
from .terms import DeleteOptions, Target, Write

if TYPE_CHECKING:
    from .catalogue import Catalogue, Resource
    from .store import Json, Revision, Store

# As on a cluster: without these, nothing of the system has a home.
_KEPT_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Deletion:
    """Deletes objects and sees to what depends on them."""

    def __init__(self, *, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

    def delete(self, target: Target, options: DeleteOptions, *, now: float) -> Write:
        """Let an object go: at once, or marked, to be ended by its kubelet or its finalizers."""
        stored = self._store.get(target.resource.table, target.key)
        if stored is None:
            raise not_found(target.resource, target.name)
        obj = stored.decode()
        _check_preconditions(target, obj, options)
        if target.resource.table == NAMESPACES.table:
            return self._delete_namespace(target, stored, options=options, now=now)
        if target.resource.table == DEFINITIONS.table and not options.dry_run:
            self._remove_all_of(target.name, now=now)
        changed = metadata.mark_deleted(obj, grace=rules_of(target.resource).grace(obj, options.grace), now=now)
        if options.dry_run or not (changed or metadata.may_go(obj)):
            return Write(revision=stored, removed=metadata.may_go(obj))
        if not metadata.may_go(obj):
            return Write(revision=self._put(target, obj))
        if "deletionTimestamp" not in stored.decode()["metadata"]:
            # What goes at once is told in its last stored state, without the marks of this deletion.
            return self.remove(target, stored.decode(), now=now)
        # What was marked before is marked once more, as due now, and then removed: two changes, as on a cluster.
        self._put(target, obj)
        return self.remove(target, obj, now=now)

    def remove(self, target: Target, obj: Json, *, now: float) -> Write:
        """Take an object out, and its namespace after it if it was the last one there."""
        resource = target.resource
        fields = rules_of(resource).selectable(obj)
        revision = self._store.remove(resource.table, target.key, obj, fields=fields)
        if resource.namespaced:
            self._remove_if_empty(target.namespace, now=now)
        return Write(revision=revision, removed=True)

    def _remove_all_of(self, table: str, *, now: float) -> None:
        """A kind that goes takes its objects along, whatever their finalizers wait for."""
        for resource in self._catalogue.resources:
            for one in self._store.snapshot(table) if resource.table == table else ():
                meant = Target(
                    resource=resource, namespace=one.fields["metadata.namespace"], name=one.fields["metadata.name"]
                )
                self.remove(meant, one.decode(), now=now)

    def _put(self, target: Target, obj: Json) -> Revision:
        fields = rules_of(target.resource).selectable(obj)
        return self._store.put(target.resource.table, target.key, obj, fields=fields)

    def _delete_namespace(self, target: Target, stored: Revision, *, options: DeleteOptions, now: float) -> Write:
        obj = stored.decode()
        if target.name in _KEPT_NAMESPACES:
            raise forbidden(NAMESPACES, target.name, "this namespace may not be deleted")
        if options.dry_run or "deletionTimestamp" in obj["metadata"]:
            return Write(revision=stored)
        obj["metadata"]["deletionTimestamp"] = metadata.timestamp(now)
        obj["status"]["phase"] = "Terminating"
        marked = self._put(target, obj)
        for resource in self._catalogue.namespaced():
            for one in self._store.snapshot(resource.table, prefix=f"{target.name}/"):
                self._delete_within(target.name, one, resource=resource, now=now)
        return self._remove_if_empty(target.name, now=now) or Write(revision=marked)

    def _delete_within(self, namespace: str, one: Revision, *, resource: Resource, now: float) -> None:
        within = Target(resource=resource, namespace=namespace, name=one.fields["metadata.name"])
        self.delete(within, DeleteOptions(), now=now)

    def _remove_if_empty(self, namespace: str, *, now: float) -> Write | None:
        stored = self._store.get(NAMESPACES.table, namespace)
        if stored is None or stored.fields["status.phase"] != "Terminating":
            return None
        if any(self._store.snapshot(one.table, prefix=f"{namespace}/") for one in self._catalogue.namespaced()):
            return None
        obj = stored.decode()
        if obj["metadata"].get("finalizers"):
            return None
        return self.remove(Target(resource=NAMESPACES, name=namespace), obj, now=now)


def _check_preconditions(target: Target, obj: Json, options: DeleteOptions) -> None:
    found = obj["metadata"]
    for wanted, field, shown in ((options.uid, "uid", "UID"), (options.version, "resourceVersion", "ResourceVersion")):
        if wanted and wanted != found[field]:
            why = f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {found[field]}"
            raise conflict(target.resource, target.name, why)
