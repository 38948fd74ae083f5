"""What requests, verbs and answers speak of."""

from __future__ import annotations

import msgspec

from .catalogue import Resource
from .selectors import Predicate, always
from .store import Revision


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is about."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        """Under which the object is kept."""
        return f"{self.namespace}/{self.name}" if self.resource.namespaced else self.name

    @property
    def prefix(self) -> str:
        """With which the keys of this collection begin."""
        return f"{self.namespace}/" if self.namespace else ""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a collection are meant."""

    labels: Predicate = always
    fields: Predicate = always
    narrowed: bool = False

    def matches(self, revision: Revision) -> bool:
        """Tell whether an object is meant."""
        return self.labels(revision.labels) and self.fields(revision.fields)


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an object is to go."""

    grace: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False
    # What becomes of what it owns: it goes after it, before it (Foreground), or stays (Orphan).
    propagation: str = "Background"


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """What a write gave: the object, and whether it is new or gone."""

    revision: Revision
    created: bool = False
    removed: bool = False
