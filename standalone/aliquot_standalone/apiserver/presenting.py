"""Stored revisions as the bytes that a client reads: one object, a list, a line of a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from . import event_forms
from .catalogue import NEW_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .catalogue import Resource
    from .store import Revision
    from .watching import Notice

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_encode = msgspec.json.encode


def item(resource: Resource, revision: Revision) -> bytes:
    """Give an object as it stands in a list: the list says the kind."""
    if resource is NEW_EVENTS:
        return _encode(event_forms.to_new(revision.decode()))
    return revision.raw


def whole(resource: Resource, revision: Revision) -> bytes:
    """Give an object that stands alone."""
    head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()
    return head + item(resource, revision)[1:]


def collection(resource: Resource, revisions: Iterable[Revision], *, metadata: dict[str, Any]) -> bytes:
    """Give a list; stored bytes are joined, not encoded again."""
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    items = b",".join([item(resource, one) for one in revisions])
    return _encode(head)[:-1] + b',"items":[' + items + b"]}"


def line(kind: str, body: bytes) -> bytes:
    """Give one line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


def teller(resource: Resource) -> Callable[[Notice], bytes]:
    """Give what spells changes as lines of a watch; what is the same in all of them is spelled once."""
    kind = f'","object":{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
    heads = {change: f'{{"type":"{change}{kind}'.encode() for change in ("ADDED", "MODIFIED", "DELETED")}

    def told(notice: Notice) -> bytes:
        return b"%s%s}\n" % (heads[notice.type], item(resource, notice.revision)[1:])

    return told


def bookmark(resource: Resource, version: int, *, initial_end: bool = False) -> bytes:
    """Say up to which version a watcher has been told all."""
    metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return line("BOOKMARK", _encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}))
