"""What the API server sends, decoded from bytes into our structs.

One pass where all is well: 5,000 pods of 4.4 KB then take 36 ms instead of 3.5 s in typed models.
Only where that pass fails, objects are taken one by one, so that one object that we can't read hides no other.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec

from aliquot_core.objects import ObjectMeta
from aliquot_kube.errors import NOT_JSON, GarbledError, Status
from aliquot_kube.resources import T

WatchKind = Literal["ADDED", "MODIFIED", "DELETED"]


class ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The version that a list shows, and the token for its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is there but breaks our idea of its kind; the metadata could still be read."""

    metadata: ObjectMeta
    why: str


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A list, or a part of one."""

    metadata: ListMeta = ListMeta()
    items: list[T] = []
    unreadable: list[Unreadable] = []


class Event(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One object came, changed or went."""

    type: WatchKind
    object: T


class UnreadableEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The same, of an object that we can't read."""

    type: WatchKind
    object: Unreadable


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing happened up to this version."""

    resource_version: str


Line = Event[T] | UnreadableEvent | Bookmark | Status


class _RawPage(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] = []


class _RawEvent(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _OnlyMeta(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


class Decoder(Generic[T]):
    """Reads the pages and watch lines of one kind of object."""

    def __init__(self, kind: type[T]) -> None:
        self._object = msgspec.json.Decoder(kind)
        # The type is known only at run time, so the checker can't follow the subscript.
        self._page: msgspec.json.Decoder[Page[T]] = msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]  # the same
        self._event: msgspec.json.Decoder[Event[T]] = msgspec.json.Decoder(Event[kind])  # type: ignore[valid-type]  # the same

    def object(self, body: bytes | msgspec.Raw) -> T:
        """One object, as a get or a write answers it."""
        try:
            return self._object.decode(body)
        except NOT_JSON as error:
            raise GarbledError(f"not the object that was asked for: {error}") from error

    def page(self, body: bytes) -> Page[T]:
        """A page of a list."""
        try:
            page = self._page.decode(body)
        except NOT_JSON:
            page = self._page_by_object(body)
        if not page.metadata.resource_version or not all(item.metadata.name for item in page.items):
            raise GarbledError("a list without a resourceVersion, or of things without a name")
        return page

    def line(self, line: bytes) -> Line[T]:
        """A line of a watch."""
        try:
            event = self._event.decode(line)
        except NOT_JSON:
            # Also the ordinary way of bookmarks and errors, which come about once a minute: a bookmark's object is
            # hollow (`containers: null`) and an ERROR's is a Status.
            return self._rare_line(line)
        if not event.object.metadata.name:
            raise GarbledError("an event of a thing without a name")
        return event

    def _page_by_object(self, body: bytes) -> Page[T]:
        raw = _decode(_RawPage, body)
        items: list[T] = []
        unreadable: list[Unreadable] = []
        for item in raw.items:
            try:
                items.append(self._object.decode(item))
            except NOT_JSON as error:
                unreadable.append(_unreadable(item, error))
        return Page(metadata=raw.metadata, items=items, unreadable=unreadable)

    def _rare_line(self, line: bytes) -> Line[T]:
        raw = _decode(_RawEvent, line)
        if raw.type == "ERROR":
            return _decode(Status, raw.object)
        if raw.type == "BOOKMARK":
            return Bookmark(resource_version=_decode(_OnlyMeta, raw.object).metadata.resource_version)
        try:
            return Event(type=raw.type, object=self._object.decode(raw.object))
        except NOT_JSON as error:
            return UnreadableEvent(type=raw.type, object=_unreadable(raw.object, error))


_S = TypeVar("_S", bound=msgspec.Struct)


def _decode(kind: type[_S], body: bytes | msgspec.Raw) -> _S:
    try:
        return msgspec.json.decode(body, type=kind)
    except NOT_JSON as error:
        raise GarbledError(f"not what an API server says: {error}") from error


def _unreadable(item: msgspec.Raw, error: Exception) -> Unreadable:
    metadata = _decode(_OnlyMeta, item).metadata
    if not metadata.name:
        raise GarbledError("a thing without a name")
    return Unreadable(metadata=metadata, why=str(error))
