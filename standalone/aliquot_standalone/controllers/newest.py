"""Objects as they were last heard of, from a watch or from the answer to a write of our own, whichever is newer.

A controller that decides by its watch alone would do again what it did a moment ago: the watch lags behind its writes.
"""

from __future__ import annotations

from typing import Generic

from aliquot_kube.resources import T


class Newest(Generic[T]):
    """Objects of one kind, by `namespace/name`."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """Give the object."""
        return self._objects.get(key)

    def values(self) -> list[T]:
        """Give all."""
        return list(self._objects.values())

    def put(self, thing: T) -> bool:
        """Take in an object from anywhere; tells whether it is news."""
        key, version = key_of(thing), _version(thing)
        known = self._objects.get(key)
        if known is not None and version <= _version(known):
            return False
        self._objects[key] = thing
        return True

    def drop(self, thing: T) -> None:
        """Take in that the watch tells of its end; what was made since under its name stays."""
        key = key_of(thing)
        known = self._objects.get(key)
        if known is not None and known.metadata.uid == thing.metadata.uid:
            del self._objects[key]


def key_of(thing: T) -> str:
    """Give an object's key."""
    return f"{thing.metadata.namespace}/{thing.metadata.name}"


def _version(thing: T) -> int:
    return int(thing.metadata.resource_version or 0)
