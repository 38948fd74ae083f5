"""Whose the processes are that are only played."""

from __future__ import annotations

import msgspec


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str
