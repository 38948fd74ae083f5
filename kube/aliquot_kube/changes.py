"""What a consumer of a live copy is told."""

from __future__ import annotations

from typing import Generic

import msgspec

from aliquot_kube.resources import T


class Added(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An object that was not there before."""

    new: T


class Modified(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An object that changed; `old` is the very object that was told of before."""

    old: T
    new: T


class Deleted(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An object that is gone; `old` is the last that was told of it."""

    old: T


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """A whole list was told of: everything up to this version is known. Comes after the first list and each new one."""

    resource_version: str


Change = Added[T] | Modified[T] | Deleted[T] | Synced
