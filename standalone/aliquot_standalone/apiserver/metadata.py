"""What the server does to the metadata of every object: identity at creation, what may change later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from aliquot_core.instants import second_time

from . import names
from .failures import Cause, bad_request, conflict, forbidden_field, required, stale, wrong

if TYPE_CHECKING:
    from .catalogue import Resource
    from .store import Json

# What only the server writes; a client's value is put back to the stored one.
_SERVERS = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "namespace",
    "selfLink",
    "uid",
)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_GENERATED_BASE = 63 - _SUFFIX_LENGTH


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """Where new identities come from: handed in, so that a simulation repeats them from its seed."""

    uid: Callable[[], str]
    choose: Callable[[str], str]

    def suffix(self) -> str:
        """Give the random end of a generated name."""
        return "".join(self.choose(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))


OPTIONAL_COLLECTIONS = ("annotations", "finalizers", "labels", "ownerReferences")


def prepare_new(obj: Json, *, resource: Resource, namespace: str, fresh: Fresh, now: float) -> None:
    """Give a new object its identity."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion may not be set on an object to be created")
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(field, None)
    if resource.namespaced:
        metadata["namespace"] = namespace
    elif metadata.pop("namespace", ""):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"][:_GENERATED_BASE] + fresh.suffix()
    metadata["uid"] = fresh.uid()
    metadata["creationTimestamp"] = second_time(now)
    if resource.generation:
        metadata["generation"] = 1


def check_address(obj: Json, *, name: str, namespace: str) -> None:
    """Refuse an object whose name or namespace contradicts the address it was sent to."""
    metadata = obj["metadata"]
    body_name = metadata.get("name", "")
    if name and not body_name:
        metadata["name"] = body_name = name
    if name and body_name != name:
        raise bad_request(f"the name of the object ({body_name}) does not match the name on the URL ({name})")
    if namespace and metadata.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_preconditions(metadata: Json, *, old: Json, resource: Resource) -> None:
    """Refuse a write that was meant for another object of that name, or for another version of it."""
    name, uid, version = old["metadata"]["name"], metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != old["metadata"]["uid"]:
        found = old["metadata"]["uid"]
        raise conflict(resource, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}")
    if version and version != old["metadata"]["resourceVersion"]:
        raise stale(resource, name)


def keep_servers_part(new: Json, old: Json) -> None:
    """Put back what a client may not change in metadata."""
    metadata, before = new["metadata"], old["metadata"]
    for field in _SERVERS:
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    # Whoever does not speak of owners leaves them as they are.
    if not metadata.get("managedFields") and "managedFields" in before:
        metadata["managedFields"] = before["managedFields"]


def mark_deleted(obj: Json, *, grace: int, now: float) -> bool:
    """Set when an object is to be gone; a later deletion can only shorten the time. Tells whether anything changed."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = second_time(now + grace)
        if "generation" in metadata:
            metadata["generation"] += 1
    else:
        before = metadata.get("deletionGracePeriodSeconds", 0)
        if grace >= before:
            return False
        metadata["deletionTimestamp"] = second_time(_instant(metadata["deletionTimestamp"]) - before + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    return True


def _instant(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def may_go(obj: Json) -> bool:
    """Tell whether nothing holds a deleted object any more: no grace, no finalizer."""
    metadata = obj["metadata"]
    waiting = "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds") != 0
    return not waiting and not metadata.get("finalizers")


def causes(obj: Json, *, valid_name: Callable[[str], bool]) -> list[Cause]:
    """Check name, labels and annotations."""
    metadata = obj["metadata"]
    found = []
    name = metadata.get("name", "")
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif not valid_name(name):
        found.append(wrong("metadata.name", name, names.rule_of(name)))
    found += names.label_causes(metadata.get("labels", {}), at="metadata.labels")
    found += names.annotation_causes(metadata.get("annotations", {}), at="metadata.annotations")
    found += [
        wrong("metadata.finalizers", finalizer, "a finalizer is named [domain/]name")
        for finalizer in metadata.get("finalizers", [])
        if not names.is_qualified(finalizer)
    ]
    return found


def update_causes(new: Json, old: Json) -> list[Cause]:
    """Check what holds of metadata between two versions."""
    if "deletionTimestamp" not in old["metadata"]:
        return []
    before = set(old["metadata"].get("finalizers", []))
    added = [one for one in new["metadata"].get("finalizers", []) if one not in before]
    if not added:
        return []
    return [forbidden_field("metadata.finalizers", f"no finalizer can be added while the object is deleted: {added}")]
