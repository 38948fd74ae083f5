"""One watch: a position in a table's history, pulled by its reader at the reader's own pace. Pure.

What always holds: a reader that begins at a list's version and applies every change has the list's later state. With a
selector, an object that stops matching is told as DELETED (in its last matching shape) and one that begins to match as
ADDED. A reader that history has overtaken gets the expiry error, and nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from .store import revise

if TYPE_CHECKING:
    from .store import Change, ChangeType, Revision, Store

Matches = Callable[["Revision"], bool]


class Notice(msgspec.Struct, frozen=True, gc=False):
    """What a watcher is told: a change of its selection, with the object as it is to see it."""

    type: ChangeType
    revision: Revision
    version: int


class Watch:
    """A reader's place in history."""

    def __init__(self, *, store: Store, table: str, prefix: str, matches: Matches, after: int) -> None:
        self._store = store
        self._table = table
        self._prefix = prefix
        self._matches = matches
        self.version = after

    @property
    def table(self) -> str:
        """Whose changes it waits for."""
        return self._table

    def take(self, *, limit: int = 500) -> list[Notice]:
        """Move on by some changes and give those that concern this reader; raises when too late."""
        if not self.behind:
            # Nothing is missed, however much history is forgotten.
            return []
        changes = self._store.table(self._table).since(self.version, limit=limit)
        self.version = changes[-1].version
        notices = (self._notice(change) for change in changes)
        return [notice for notice in notices if notice is not None]

    @property
    def behind(self) -> bool:
        """Whether there is more to take."""
        return self._store.table(self._table).newest > self.version

    def caught_up(self) -> int:
        """Give the version up to which this reader has seen all (for a bookmark)."""
        if not self.behind:
            # A version from the future stays: nothing up to it is to be told.
            self.version = max(self.version, self._store.version)
        return self.version

    def _notice(self, change: Change) -> Notice | None:
        if not change.revision.key.startswith(self._prefix):
            return None
        before = change.previous is not None and self._matches(change.previous)
        now = change.type != "DELETED" and self._matches(change.revision)
        if now:
            return Notice("MODIFIED" if before else "ADDED", change.revision, change.version)
        if not before or change.previous is None:
            return None
        if change.type == "DELETED":
            return Notice("DELETED", change.revision, change.version)
        # It left the selection: shown as it last was inside, but at this version, from which the reader may resume.
        last = change.previous
        shown = revise(last.decode(), key=last.key, version=change.version, fields=last.fields)
        return Notice("DELETED", shown, change.version)
