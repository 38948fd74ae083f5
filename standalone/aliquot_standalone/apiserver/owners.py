"""Who goes with whom: objects by the uids of their owners, kept up with every write. Pure.

On a cluster a controller collects what has lost its owner, some moments later; here it goes in the same write, as
namespaces empty themselves. What must always hold: an object is found under each owner that its newest revision names.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .store import Change, Json, Revision, Store

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_MARK = b'"ownerReferences"'
Place = tuple[str, str]


class Owners:
    """An index of the store."""

    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._owned: defaultdict[str, dict[Place, None]] = defaultdict(dict)
        for table, revision in store.everything():
            self._add(table, revision)
        store.subscribe(self._note)

    def owned_by(self, uid: str) -> list[Place]:
        """Give table and key of each object that names this owner."""
        return list(self._owned.get(uid, ()))

    def blocked_by(self, uid: str) -> bool:
        """Tell whether an owner that is deleted in the foreground still waits for somebody."""
        return any(
            one.get("uid") == uid and one.get("blockOwnerDeletion")
            for table, key in self.owned_by(uid)
            if (found := self._store.get(table, key)) is not None
            for one in _owners(found.decode())
        )

    def _note(self, table: str, change: Change) -> None:
        if change.previous is not None and _MARK in change.previous.raw:
            for uid in _uids(change.previous):
                self._owned[uid].pop((table, change.previous.key), None)
                if not self._owned[uid]:
                    del self._owned[uid]
        if change.type != "DELETED":
            self._add(table, change.revision)

    def _add(self, table: str, revision: Revision) -> None:
        if _MARK in revision.raw:
            for uid in _uids(revision):
                self._owned[uid][table, revision.key] = None


def without_owner(obj: Json, uid: str) -> bool:
    """Take an owner off an object, in place; tells whether another is left."""
    left = [one for one in _owners(obj) if one.get("uid") != uid]
    if left:
        obj["metadata"]["ownerReferences"] = left
    else:
        obj["metadata"].pop("ownerReferences", None)
    return bool(left)


def _uids(revision: Revision) -> Iterable[str]:
    return (one.get("uid", "") for one in _owners(revision.decode()))


def _owners(obj: Json) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["metadata"].get("ownerReferences") or []
    return found
