"""What the server remembers: the newest revision of each object, and a bounded history of changes. Pure.

Theory of operation. An object is kept as JSON bytes (without `kind` and `apiVersion`, which its address implies) beside
its labels and selectable fields; whoever wants a dict decodes a copy, so nothing stored can be changed by accident, a
list is a join of bytes, and the cyclic collector has nothing to walk. One counter numbers all writes of all kinds.
Each table keeps its last changes with the revision before and after. What always holds:
 - versions grow by one per write, and an object's resourceVersion is the number of its last write;
 - state at version V = the state now, with the changes after V undone (so a paged list sees one instant);
 - state at V plus the changes after V = the state now (so a watch from a list's version misses nothing);
 - a version whose changes are no longer all there is refused as expired, never answered in part.
Readers pull changes by version: a slow reader costs nothing, and is told so once history has passed it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Literal

import msgspec

from .failures import expired, version_in_future

Json = dict[str, Any]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]

_version_of = attrgetter("version")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Json).decode


class Revision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object at one version."""

    key: str
    version: int
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def decode(self) -> Json:
        """Give a fresh copy of the object that the caller may change."""
        return _decode(self.raw)


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One write: what the object was, and what it is (or last was, when deleted)."""

    version: int
    type: ChangeType
    revision: Revision
    previous: Revision | None


class Table:
    """All objects of one kind."""

    def __init__(self, *, compacted: int) -> None:
        self.current: dict[str, Revision] = {}
        self.order: list[str] = []
        self.changes: list[Change] = []
        # Changes up to this version (inclusive) are forgotten.
        self.compacted = compacted
        # The last change, forgotten or not.
        self.newest = 0

    def record(self, change: Change, *, keep: int) -> None:
        """Take a change into state and history."""
        key = change.revision.key
        if change.type == "DELETED":
            del self.current[key]
            del self.order[bisect_left(self.order, key)]
        else:
            if key not in self.current:
                insort(self.order, key)
            self.current[key] = change.revision
        self.changes.append(change)
        self.newest = change.version
        # Cutting half at once keeps the cost of forgetting at one move per change.
        if len(self.changes) > 2 * keep:
            self.forget_through(self.changes[-keep - 1].version)

    def restore(self, revision: Revision) -> None:
        """Put a revision in without history."""
        if revision.key not in self.current:
            insort(self.order, revision.key)
        self.current[revision.key] = revision

    def drop(self, key: str) -> None:
        """Take an object out without history."""
        if self.current.pop(key, None) is not None:
            del self.order[bisect_left(self.order, key)]

    def forget_through(self, version: int) -> None:
        """Drop changes up to a version, inclusive."""
        if version > self.compacted:
            self.compacted = version
            del self.changes[: bisect_right(self.changes, version, key=_version_of)]

    def since(self, version: int, *, limit: int | None = None) -> list[Change]:
        """Give the changes after a version, oldest first."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        start = bisect_right(self.changes, version, key=_version_of)
        return self.changes[start:] if limit is None else self.changes[start : start + limit]

    def at(self, version: int) -> tuple[list[str], Mapping[str, Revision]]:
        """Give the keys in order and the revisions as they were at a version."""
        changes = self.since(version)
        if not changes:
            return self.order, self.current
        state = dict(self.current)
        for change in reversed(changes):
            if change.previous is None:
                state.pop(change.revision.key, None)
            else:
                state[change.revision.key] = change.previous
        return sorted(state), state


class Store:
    """All tables under one counter."""

    def __init__(self, *, keep: int = 4096) -> None:
        self._tables: dict[str, Table] = {}
        self._keep = keep
        self._compacted = 0
        self._listeners: list[Callable[[str, Change], None]] = []
        self._journal: Callable[[str, Change], None] | None = None
        self.version = 0

    def table(self, name: str) -> Table:
        """Give a table, empty at first."""
        if name not in self._tables:
            self._tables[name] = Table(compacted=self._compacted)
        return self._tables[name]

    def subscribe(self, listener: Callable[[str, Change], None]) -> None:
        """Tell someone of each change right after it (a bell for watchers, a journal); it must not fail or write."""
        self._listeners.append(listener)

    def get(self, table: str, key: str) -> Revision | None:
        """Give the newest revision of an object."""
        return self.table(table).current.get(key)

    def put(self, table: str, key: str, obj: Json, *, fields: Mapping[str, str]) -> Revision:
        """Write an object, new or not; its resourceVersion is set here."""
        return self._write(table, key, obj, fields=fields, kind=None)

    def remove(self, table: str, key: str, obj: Json, *, fields: Mapping[str, str]) -> Revision:
        """Delete an object; what is handed in is its last state."""
        return self._write(table, key, obj, fields=fields, kind="DELETED")

    def _write(
        self, table: str, key: str, obj: Json, *, fields: Mapping[str, str], kind: ChangeType | None
    ) -> Revision:
        here = self.table(table)
        previous = here.current.get(key)
        version = self.version + 1
        revision = revise(obj, key=key, version=version, fields=fields)
        kind = kind or ("ADDED" if previous is None else "MODIFIED")
        change = Change(version=version, type=kind, revision=revision, previous=previous)
        if self._journal:
            # May raise; then nothing has happened.
            self._journal(table, change)
        self.version = version
        here.record(change, keep=self._keep)
        for listener in self._listeners:
            listener(table, change)
        return revision

    def snapshot(self, table: str, *, prefix: str = "", version: int | None = None, after: str = "") -> list[Revision]:
        """Give the revisions whose keys begin with a prefix and follow `after`, as of a version, in key order."""
        here = self.table(table)
        if version is not None and version > self.version:
            raise version_in_future(version, self.version)
        order, state = (here.order, here.current) if version is None else here.at(version)
        start = bisect_right(order, after) if after else bisect_left(order, prefix)
        stop = bisect_left(order, prefix + "\U0010ffff") if prefix else len(order)
        return [state[key] for key in order[start:stop]]

    def count_of(self, table: str, *, prefix: str) -> int:
        """Give how many objects have keys that begin so."""
        order = self.table(table).order
        return bisect_left(order, prefix + "\U0010ffff") - bisect_left(order, prefix)

    def compact(self, version: int) -> None:
        """Forget all changes up to a version, inclusive, in all tables."""
        self._compacted = max(self._compacted, version)
        for table in self._tables.values():
            table.forget_through(version)

    # --- what a journal brings back ----------------------------------------------------------------------------------
    def restore_version(self, version: int) -> None:
        """Go on behind this version."""
        self.version = max(self.version, version)

    def restore(self, table: str, revision: Revision) -> None:
        """Take an object as it was; without history, so before anybody watches."""
        self.table(table).restore(revision)
        self.restore_version(revision.version)

    def forget(self, table: str, key: str, *, version: int) -> None:
        """Take an object out that was deleted."""
        self.table(table).drop(key)
        self.restore_version(version)

    def begin(self, *, version: int, journal: Callable[[str, Change], None]) -> None:
        """Go on from a version, with a journal that is told of each change before it is in force."""
        self.version = version
        self._journal = journal
        self.compact(version)

    def everything(self) -> Iterator[tuple[str, Revision]]:
        """Give all objects with their tables."""
        for name, table in self._tables.items():
            for revision in table.current.values():
                yield name, revision

    def count(self) -> int:
        """Give how many objects there are."""
        return sum(len(table.current) for table in self._tables.values())


def revise(obj: Json, *, key: str, version: int, fields: Mapping[str, str]) -> Revision:
    """Freeze an object at a version."""
    metadata = obj["metadata"]
    metadata["resourceVersion"] = str(version)
    return Revision(
        key=key, version=version, raw=_encode(obj), labels=dict(metadata.get("labels") or {}), fields=fields
    )
