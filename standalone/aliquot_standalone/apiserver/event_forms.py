"""An event has two forms, one per API group, and is kept once, in the older form."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store import Json

_NEW_NAMES = MappingProxyType(
    {
        "involvedObject": "regarding",
        "message": "note",
        "source": "deprecatedSource",
        "firstTimestamp": "deprecatedFirstTimestamp",
        "lastTimestamp": "deprecatedLastTimestamp",
        "count": "deprecatedCount",
        "reportingComponent": "reportingController",
    }
)
_OLD_NAMES = MappingProxyType({new: old for old, new in _NEW_NAMES.items()})


def to_new(event: Json) -> Json:
    """Give a stored event under the names of `events.k8s.io`."""
    return {_NEW_NAMES.get(field, field): value for field, value in event.items()}


def to_stored(event: Json) -> Json:
    """Give an event of `events.k8s.io` under the names by which it is kept."""
    return {_OLD_NAMES.get(field, field): value for field, value in event.items()}
