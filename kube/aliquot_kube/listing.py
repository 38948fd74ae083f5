"""A list on its way, and what differs between it and what was known."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Generic

from aliquot_core.objects import ObjectMeta
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.resources import T
from aliquot_kube.wire import Page, Unreadable

log = logging.getLogger(__name__)


class Listing(Generic[T]):
    """A list on its way, page by page."""

    def __init__(self) -> None:
        self.pages = 0
        self.objects: dict[str, T] = {}

    def add(self, page: Page[T], *, known: Mapping[str, T]) -> None:
        """Keep a page; an object that did not change stays the one we have."""
        self.pages += 1
        for new in page.items:
            key = key_of(new.metadata)
            old = known.get(key)
            self.objects[key] = old if old is not None and _same(old, new) else new
        for unreadable in page.unreadable:
            complain(unreadable)
            key = key_of(unreadable.metadata)
            last = known.get(key)
            # The last state that we could read is nearer to the truth than its absence.
            if last is not None and last.metadata.uid == unreadable.metadata.uid:
                self.objects[key] = last


def key_of(metadata: ObjectMeta) -> str:
    """Name an object as people do: `namespace/name`, or the name of what has no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _same(old: T, new: T) -> bool:
    return old.metadata.uid == new.metadata.uid and old.metadata.resource_version == new.metadata.resource_version


def differences(known: Mapping[str, T], listed: Mapping[str, T]) -> Iterator[Change[T]]:
    """What to tell somebody who knows the one so that they know the other."""
    for key, old in known.items():
        if key not in listed:
            yield Deleted(old=old)
    for key, new in listed.items():
        yield from difference(known.get(key), new)


def difference(old: T | None, new: T) -> Iterator[Change[T]]:
    """The same for one name; another uid under it is another object."""
    if old is None:
        yield Added(new=new)
    elif old.metadata.uid != new.metadata.uid:
        yield Deleted(old=old)
        yield Added(new=new)
    elif not _same(old, new):
        yield Modified(old=old, new=new)


def complain(unreadable: Unreadable) -> None:
    """Say that an object can't be read: our structs are behind the API, a defect."""
    extra = {"object": key_of(unreadable.metadata), "why": unreadable.why}
    log.error("an object can not be read and is left out", extra=extra)
