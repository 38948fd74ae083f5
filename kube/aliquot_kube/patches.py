"""Patches with their content type in the open.

A dict sent without a type becomes a strategic merge in one client and a JSON merge in another;
here the two belong together and cannot be parted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """A body and what it is."""

    content_type: str
    body: bytes
    # Whether it may be refused because somebody else wrote first.
    tests: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a JSON Patch (RFC 6902)."""

    op: Literal["add", "remove", "replace", "test"]
    path: str
    value: Any = msgspec.UNSET


def pointer(*segments: str) -> str:
    """Spell the path to a field; `/` and `~` inside a name are escaped (RFC 6901)."""
    return "".join("/" + segment.replace("~", "~0").replace("/", "~1") for segment in segments)


def add(path: str, value: Any) -> Operation:
    """Set a field, whether or not it is there; its parent must be."""
    return Operation(op="add", path=path, value=value)


def replace(path: str, value: Any) -> Operation:
    """Set a field that must be there."""
    return Operation(op="replace", path=path, value=value)


def remove(path: str) -> Operation:
    """Take a field away that must be there."""
    return Operation(op="remove", path=path)


def expect(path: str, value: Any) -> Operation:
    """Let the whole patch fail (422) unless the field has this value: compare and set."""
    return Operation(op="test", path=path, value=value)


def json_patch(*operations: Operation) -> Patch:
    """All of the steps or none."""
    tests = any(operation.op == "test" for operation in operations)
    return Patch(content_type=JSON_PATCH, body=msgspec.json.encode(operations), tests=tests)


def merge_patch(change: Mapping[str, Any]) -> Patch:
    """Set the fields that are named and remove those that are `None` (RFC 7386); lists are replaced whole."""
    return Patch(content_type=MERGE_PATCH, body=msgspec.json.encode(change))


def strategic_patch(change: Mapping[str, Any]) -> Patch:
    """Merge as the kind's definition says: of a pod's conditions only the one of the same type is replaced."""
    return Patch(content_type=STRATEGIC_MERGE_PATCH, body=msgspec.json.encode(change))
