"""How objects go: marked, waited for, removed; with what they own, and namespaces when all in them has gone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot_core.instants import second_time

from . import metadata
from .catalogue import DEFINITIONS, NAMESPACES
from .failures import conflict, forbidden, not_found
from .kinds import rules_of
from .owners import FOREGROUND, ORPHAN, Owners, without_owner
from .store import revise
from .terms import DeleteOptions, Target, Write

if TYPE_CHECKING:
    from .catalogue import Catalogue, Resource
    from .store import Json, Revision, Store

_WAYS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
# As on a cluster: without these, nothing of the system has a home.
_KEPT_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class Deletion:
    """Deletes objects and sees to what depends on them."""

    def __init__(self, *, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue
        self._owners = Owners(store=store)

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
        owns = bool(self._owners.owned_by(obj["metadata"]["uid"]))
        if owns and options.propagation in _WAYS and not options.dry_run:
            _hold(obj, _WAYS[options.propagation])
        changed = metadata.mark_deleted(obj, grace=rules_of(target.resource).grace(obj, options.grace), now=now)
        if options.dry_run or not (changed or metadata.may_go(obj)):
            return Write(revision=stored, removed=metadata.may_go(obj))
        if not metadata.may_go(obj):
            marked = Write(revision=self._put(target, obj))
            return self._lead_away(target, obj, now=now) if owns else marked
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
        self._leave_none(obj["metadata"], now=now)
        if resource.namespaced:
            self._remove_if_empty(target.namespace, now=now)
        return Write(revision=revision, removed=True)

    def take_from_owners_that_are_gone(self, table: str, stored: Revision, *, now: float) -> None:
        """What names an owner that is there no more goes as if it had gone just now.

        A controller that has not heard yet of its object's end would else make what nobody ever takes away.
        """
        meta = stored.decode()["metadata"]
        for one in meta.get("ownerReferences") or []:
            owner = self._owner(one, namespace=meta.get("namespace", ""))
            # Of a kind that is not served nobody can tell whether it is there.
            if owner is not None and not self._is_there(owner, uid=one.get("uid", "")):
                self._take_along(table, stored.key, one.get("uid", ""), how="Background", now=now)

    # --- what an object owns -----------------------------------------------------------------------------------------
    def _lead_away(self, target: Target, obj: Json, *, now: float) -> Write:
        """An owner that waits: its own are let go without it, or go before it."""
        uid, finalizers = obj["metadata"]["uid"], obj["metadata"].get("finalizers", [])
        if ORPHAN in finalizers:
            for table, key in self._owners.owned_by(uid):
                self._disown(table, key, uid)
            return self._go_on(target, ORPHAN, now=now)
        if FOREGROUND in finalizers:
            for table, key in self._owners.owned_by(uid):
                self._take_along(table, key, uid, how="Foreground", now=now)
            if not self._owners.blocked_by(uid):
                return self._go_on(target, FOREGROUND, now=now)
        stored = self._store.get(target.resource.table, target.key)
        if stored is None:
            # The last of those that it waited for has let it go already.
            fields = rules_of(target.resource).selectable(obj)
            return Write(revision=revise(obj, key=target.key, version=self._store.version, fields=fields), removed=True)
        return Write(revision=stored)

    def _leave_none(self, meta: Json, *, now: float) -> None:
        """What is removed takes along what it owns, and lets an owner go that has waited for it."""
        for table, key in self._owners.owned_by(meta["uid"]):
            self._take_along(table, key, meta["uid"], how="Background", now=now)
        for one in meta.get("ownerReferences") or []:
            owner = self._waiting_owner(one, namespace=meta.get("namespace", ""))
            if owner is not None and not self._owners.blocked_by(one["uid"]):
                self._go_on(owner, FOREGROUND, now=now)

    def _waiting_owner(self, reference: Json, *, namespace: str) -> Target | None:
        target = self._owner(reference, namespace=namespace)
        if target is None or not self._is_there(target, uid=reference.get("uid", "")):
            return None
        found = self._store.get(target.resource.table, target.key)
        held = found is not None and FOREGROUND in found.decode()["metadata"].get("finalizers", [])
        return target if held else None

    def _owner(self, reference: Json, *, namespace: str) -> Target | None:
        """Where an owner is to be found; nowhere, if its kind is not served."""
        group, _, version = reference.get("apiVersion", "").rpartition("/")
        for resource in self._catalogue.of_group(group=group, version=version):
            if resource.kind == reference.get("kind"):
                home = namespace if resource.namespaced else ""
                return Target(resource=resource, namespace=home, name=reference.get("name", ""))
        return None

    def _is_there(self, owner: Target, *, uid: str) -> bool:
        found = self._store.get(owner.resource.table, owner.key)
        return found is not None and bool(found.decode()["metadata"].get("uid") == uid)

    def _take_along(self, table: str, key: str, uid: str, *, how: str, now: float) -> None:
        """Delete an object with its last owner; with another one left it only forgets this one."""
        found = self._store.get(table, key)
        if found is None:
            return
        obj = found.decode()
        if without_owner(obj, uid):
            self._put(self._target(table, found), obj)
        else:
            self.delete(self._target(table, found), DeleteOptions(propagation=how), now=now)

    def _disown(self, table: str, key: str, uid: str) -> None:
        found = self._store.get(table, key)
        if found is not None:
            obj = found.decode()
            without_owner(obj, uid)
            self._put(self._target(table, found), obj)

    def _go_on(self, target: Target, finalizer: str, *, now: float) -> Write:
        """Take our finalizer off an owner, and remove it if it was the last thing that held it."""
        found = self._store.get(target.resource.table, target.key)
        if found is None:
            raise not_found(target.resource, target.name)
        obj = found.decode()
        left = [one for one in obj["metadata"].get("finalizers", []) if one != finalizer]
        obj["metadata"]["finalizers"] = left
        if not left:
            del obj["metadata"]["finalizers"]
        if metadata.may_go(obj):
            return self.remove(target, obj, now=now)
        return Write(revision=self._put(target, obj))

    def _target(self, table: str, revision: Revision) -> Target:
        resource = next(one for one in self._catalogue.resources if one.table == table)
        namespace, name = revision.fields["metadata.namespace"], revision.fields["metadata.name"]
        return Target(resource=resource, namespace=namespace if resource.namespaced else "", name=name)

    # --- kinds and namespaces ----------------------------------------------------------------------------------------
    def _remove_all_of(self, table: str, *, now: float) -> None:
        """A kind that goes takes its objects along, whatever their finalizers wait for."""
        for resource in self._catalogue.resources:
            for one in self._store.snapshot(table) if resource.table == table else ():
                meant = Target(
                    resource=resource, namespace=one.fields["metadata.namespace"], name=one.fields["metadata.name"]
                )
                if self._store.get(table, one.key) is not None:
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
        obj["metadata"]["deletionTimestamp"] = second_time(now)
        obj["status"]["phase"] = "Terminating"
        marked = self._put(target, obj)
        for resource in self._catalogue.namespaced():
            for one in self._store.snapshot(resource.table, prefix=f"{target.name}/"):
                self._delete_within(target.name, one, resource=resource, now=now)
        return self._remove_if_empty(target.name, now=now) or Write(revision=marked)

    def _delete_within(self, namespace: str, one: Revision, *, resource: Resource, now: float) -> None:
        # It may have gone with its owner just now.
        if self._store.get(resource.table, one.key) is not None:
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


def _hold(obj: Json, finalizer: str) -> None:
    held = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in held:
        held.append(finalizer)


def _check_preconditions(target: Target, obj: Json, options: DeleteOptions) -> None:
    found = obj["metadata"]
    for wanted, field, shown in ((options.uid, "uid", "UID"), (options.version, "resourceVersion", "ResourceVersion")):
        if wanted and wanted != found[field]:
            why = f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {found[field]}"
            raise conflict(target.resource, target.name, why)
