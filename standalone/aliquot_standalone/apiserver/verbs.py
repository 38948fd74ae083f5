"""The API's verbs over the store, with the rules of each kind between them. Pure: time and identities are handed in.

Each write goes: read the newest revision, check the caller's preconditions against it, let the kind's rules put back
what this address may not touch, check the result, store it. Nothing happens in between, so a write either sees the
newest state or is refused. A write that changes nothing is not stored: it gives no event and no new version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from . import metadata
from .acts import Act, Caller
from .admission import Admission
from .catalogue import NAMESPACES, RESOURCE_QUOTAS, SERVICE_ACCOUNTS
from .consulting import Asking, answered_by_nobody
from .copying import copied
from .deletion import Deletion
from .failures import already_exists, bad_request, invalid, not_found, wrong
from .kinds import rules_of
from .managers import note_write
from .quotas import Quotas
from .selectors import parse_fields, parse_labels
from .shapes import check_shape
from .store import Json, Revision, Store, revise
from .terms import DeleteOptions, Selection, Target, Write
from .watching import Watch
from .webhooks import Webhooks

if TYPE_CHECKING:
    from .catalogue import Catalogue, Resource
    from .metadata import Fresh
    from .rules import Rules


Edit = Callable[[Json], Json]


class Api:
    """All verbs of one server."""

    def __init__(self, *, store: Store, catalogue: Catalogue, fresh: Fresh) -> None:
        self.store = store
        self._fresh = fresh
        self._admission = Admission(store=store, webhooks=Webhooks(store=store, fresh=fresh))
        self._quotas = Quotas(store=store)
        self._deletion = Deletion(store=store, catalogue=catalogue)

    def select(self, resource: Resource, *, labels: str = "", fields: str = "") -> Selection:
        """Read selectors as the client wrote them."""
        supported = rules_of(resource).supported_fields
        return Selection(
            labels=parse_labels(labels),
            fields=parse_fields(fields, supported=supported),
            narrowed=bool(labels or fields),
        )

    def get(self, target: Target) -> Revision:
        """Give one object."""
        found = self.store.get(target.resource.table, target.key)
        if found is None:
            raise not_found(target.resource, target.name)
        return found

    def list(
        self, target: Target, *, selection: Selection, version: int | None = None, after: str = ""
    ) -> list[Revision]:
        """Give the objects of a collection behind a key, as of a version."""
        found = self.store.snapshot(target.resource.table, prefix=target.prefix, version=version, after=after)
        return [one for one in found if selection.matches(one)] if selection.narrowed else found

    def watch(self, target: Target, *, selection: Selection, after: int) -> Watch:
        """Begin to follow a collection behind a version; refused where history has passed it."""
        self.store.table(target.resource.table).since(after, limit=0)
        return Watch(
            store=self.store,
            table=target.resource.table,
            prefix=target.prefix,
            matches=selection.matches,
            after=after,
        )

    def create(
        self, target: Target, obj: Json, *, now: float, caller: Caller | None = None, dry_run: bool = False
    ) -> Asking[Write]:
        """Store a new object."""
        resource, rules = target.resource, rules_of(target.resource)
        check_shape(obj, rules.shape, kind=resource.kind)
        metadata.check_address(obj, name=target.name, namespace=target.namespace)
        if resource.namespaced:
            obj["metadata"]["namespace"] = target.namespace
        rules.prepare_new(obj, now=now)
        rules.tidy(obj)
        if caller is not None and caller.manager.operation == "Update":
            # Before admission: what that fills in is nobody's. A writer that owned it would, when it applies without
            # it, take it out, and of a pod that is forbidden.
            obj["metadata"].pop("managedFields", None)
            note_write(obj, None, caller.manager, resource=resource, now=now)
        act = Act(operation="CREATE", target=target, obj=obj, old=None, caller=caller, dry_run=dry_run)
        yield from self._admission.mutate(act, now=now)
        self._finish_new(act, now=now)
        yield from self._admission.validate(act)
        return self._store_new(act, now=now)

    def _finish_new(self, act: Act, *, now: float) -> None:
        obj, resource, rules = act.fresh, act.resource, rules_of(act.resource)
        metadata.prepare_new(obj, resource=resource, namespace=act.target.namespace, fresh=self._fresh, now=now)
        # What is set by the name that was generated just now.
        rules.prepare_new(obj, now=now)
        rules.tidy(obj)
        if causes := rules.causes(obj):
            raise invalid(resource, act.name, causes)

    def _store_new(self, act: Act, *, now: float) -> Write:
        obj, resource, rules = act.fresh, act.resource, rules_of(act.resource)
        name = obj["metadata"]["name"]
        key = f"{act.target.namespace}/{name}" if resource.namespaced else name
        if self.store.get(resource.table, key) is not None:
            raise already_exists(resource, name)
        # While webhooks were asked the namespace may have gone; what came into it then would keep it for ever.
        self._admission.check_namespace(act)
        self._quotas.check(act)
        if act.dry_run:
            return Write(revision=_unstored(obj, key=key, rules=rules), created=True)
        revision = self.store.put(resource.table, key, obj, fields=rules.selectable(obj))
        if resource.table == NAMESPACES.table:
            self._give_account(name, now=now)
        if "ownerReferences" in obj["metadata"]:
            self._deletion.take_from_owners_that_are_gone(resource.table, revision, now=now)
        return Write(revision=revision, created=True)

    def _give_account(self, namespace: str, *, now: float) -> None:
        # On a cluster a controller does this; clients wait for it before they create pods.
        account = Target(resource=SERVICE_ACCOUNTS, namespace=namespace)
        self.add(account, {"metadata": {"name": "default"}}, now=now)

    def add(self, target: Target, obj: Json, *, now: float) -> Write:
        """Store a new object of the server's own, of which nobody is asked."""
        return answered_by_nobody(self.create(target, obj, now=now))

    def update(
        self, target: Target, obj: Json, *, now: float, caller: Caller | None = None, dry_run: bool = False
    ) -> Asking[Write]:
        """Replace an object, or its status."""
        resource = target.resource
        check_shape(obj, rules_of(resource).shape, kind=resource.kind)
        metadata.check_address(obj, name=target.name, namespace=target.namespace)
        if self.store.get(resource.table, target.key) is None and resource.create_on_update:
            obj["metadata"].pop("resourceVersion", None)
            return (yield from self.create(target, obj, now=now, caller=caller, dry_run=dry_run))
        self._check_version(target, obj["metadata"].get("resourceVersion", ""))
        return (yield from self.edit(target, lambda _: copied(obj), now=now, caller=caller, dry_run=dry_run))

    def _check_version(self, target: Target, version: str) -> None:
        if not version and not target.resource.unconditional_update:
            cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(target.resource, target.name, [cause])
        if version and not version.isdecimal():
            raise invalid(
                target.resource, target.name, [wrong("metadata.resourceVersion", version, "not a version's number")]
            )

    def edit(
        self,
        target: Target,
        change: Edit,
        *,
        now: float,
        caller: Caller | None = None,
        dry_run: bool = False,
        shaped: bool = False,
    ) -> Asking[Write]:
        """Store what a change makes of an object's newest state; `shaped` says that it looks at JSON types itself."""
        while True:
            stored = self.get(target)
            old = stored.decode()
            new = change(stored.decode())
            self._settle(new, old, target=target, shaped=shaped)
            act = Act(operation="UPDATE", target=target, obj=new, old=old, caller=caller, dry_run=dry_run)
            yield from self._admission.mutate(act, now=now)
            if act.fresh is not new:
                # A webhook has made another object of it.
                new = act.fresh
                self._settle(new, old, target=target)
            if caller is not None and caller.manager.operation == "Update":
                note_write(new, old, caller.manager, resource=target.resource, now=now)
            yield from self._admission.validate(act)
            if self.get(target) is stored:
                return self._store_edited(target, new, stored=stored, old=old, now=now, dry_run=dry_run)
            # Somebody wrote while webhooks were asked: the change is made once more, of what is there now.

    def _store_edited(
        self, target: Target, new: Json, *, stored: Revision, old: Json, now: float, dry_run: bool
    ) -> Write:
        rules = rules_of(target.resource)
        if new == old:
            return Write(revision=stored)
        if target.resource.generation and _wanted(new, target.resource) != _wanted(old, target.resource):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        write = self._store(target, new, rules=rules, now=now, dry_run=dry_run)
        owners = new["metadata"].get("ownerReferences")
        if owners != old["metadata"].get("ownerReferences") and not (write.removed or dry_run):
            self._deletion.take_from_owners_that_are_gone(target.resource.table, write.revision, now=now)
        return write

    def rewrite(self, target: Target, change: Edit, *, now: float, dry_run: bool = False) -> Write:
        """Store a change that the server itself makes (a binding): no caller's part to put back, only validity."""
        rules = rules_of(target.resource)
        old = self.get(target).decode()
        new = change(self.get(target).decode())
        if causes := rules.causes(new):
            raise invalid(target.resource, target.name, causes)
        if new == old:
            return Write(revision=self.get(target))
        return self._store(target, new, rules=rules, now=now, dry_run=dry_run)

    def _settle(self, new: Json, old: Json, *, target: Target, shaped: bool = False) -> None:
        resource, rules = target.resource, rules_of(target.resource)
        if not isinstance(new.get("metadata"), dict):
            raise bad_request("the object has no metadata")
        if not shaped:
            check_shape(new, rules.shape, kind=resource.kind)
        metadata.check_address(new, name=target.name, namespace=target.namespace)
        metadata.check_preconditions(new["metadata"], old=old, resource=resource)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        metadata.keep_servers_part(new, old)
        (rules.prepare_status if target.subresource == "status" else rules.prepare_update)(new, old)
        rules.tidy(new)
        if causes := [*rules.causes(new), *rules.update_causes(new, old)]:
            raise invalid(resource, target.name, causes)

    def _store(self, target: Target, new: Json, *, rules: Rules, now: float, dry_run: bool) -> Write:
        if dry_run:
            return Write(revision=_unstored(new, key=target.key, rules=rules))
        if not metadata.may_go(new):
            return Write(revision=self.store.put(target.resource.table, target.key, new, fields=rules.selectable(new)))
        return self._deletion.remove(target, new, now=now)

    def delete(
        self, target: Target, options: DeleteOptions, *, now: float, caller: Caller | None = None
    ) -> Asking[Write]:
        """Let an object go: at once, or marked, to be ended by its kubelet or its finalizers."""
        if caller is not None:
            old = self.get(target).decode()
            act = Act(operation="DELETE", target=target, obj=None, old=old, caller=caller, dry_run=options.dry_run)
            yield from self._admission.mutate(act, now=now)
            yield from self._admission.validate(act)
        return self._deletion.delete(target, options, now=now)

    def settle(self) -> None:
        """Write down what follows from writes: what is used of quotas."""
        self._quotas.settle(self._tell_quota)

    def _tell_quota(self, namespace: str, name: str, status: Json) -> None:
        found = self.store.get(RESOURCE_QUOTAS.table, f"{namespace}/{name}")
        if found is not None and (obj := found.decode()).get("status") != status:
            self.store.put(RESOURCE_QUOTAS.table, found.key, {**obj, "status": status}, fields=found.fields)

    def remove(self, target: Target, options: DeleteOptions, *, now: float) -> Write:
        """Let an object go that is the server's own to end, of which nobody is asked."""
        return answered_by_nobody(self.delete(target, options, now=now))


def _wanted(obj: Json, resource: Resource) -> Json:
    """What a new generation counts changes of: the spec; of a custom kind all but metadata and status."""
    if resource.definition is None:
        return {"spec": obj.get("spec")}
    apart = {"metadata"} | ({"status"} if "status" in resource.subresources else set())
    return {key: value for key, value in obj.items() if key not in apart}


def _unstored(obj: Json, *, key: str, rules: Rules) -> Revision:
    version = int(obj["metadata"].get("resourceVersion", "0"))
    revision = revise(obj, key=key, version=version, fields=rules.selectable(obj))
    if version:
        return revision
    # A dry run of a creation has no version, so that nobody takes it for a stored one.
    del obj["metadata"]["resourceVersion"]
    return msgspec.structs.replace(revision, raw=msgspec.json.encode(obj))
