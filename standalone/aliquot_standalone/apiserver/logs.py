"""`pods/log`: what a container has printed, from where it runs.

The API server of a cluster asks the pod's kubelet; here whoever runs the containers hands in a `LogSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class LogWish(msgspec.Struct, frozen=True, kw_only=True):
    """What part of which container's log is wanted."""

    namespace: str
    pod: str
    uid: str
    node: str
    container: str
    # The container before the last restart.
    previous: bool = False
    follow: bool = False
    # From this byte of all that was printed on.
    since: int = 0
    # Lines from the end; None for all.
    tail: int | None = None
    limit: int | None = None


class LogsMissingError(Exception):
    """There is no such log (yet); the text says why, for the user."""


class LogSource(Protocol):
    """Reads logs; the stream ends when the log does, or when it is closed."""

    def read(self, wish: LogWish) -> AsyncGenerator[bytes]:
        """Give what was printed, piece by piece; raises `LogsMissingError` before the first."""
        ...
