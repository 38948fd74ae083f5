"""What is asked of an API server and what it answers, and the narrow door between the two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that things may take; nothing is ever asked without."""

    connect: float = 5.0
    # Until the answer begins, and between any two of its bytes.
    silence: float = 20.0
    # A request until its last byte; a stream until its first.
    total: float = 30.0


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, whole."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = ""
    timeouts: Timeouts = Timeouts()

    @property
    def where(self) -> str:
        """The question as people read it in an error."""
        return f"{self.method} {self.path}"


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A good answer (2xx); all others are raised."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """What the rest of Aliquot knows of the network; a simulation has its own side of it."""

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer; whatever is no 2xx is raised as an `ApiError`."""
        ...

    def stream(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Ask and get the answer line by line; entering raises what is no 2xx, leaving ends it at once."""
        ...


class PieceTransport(Transport, Protocol):
    """One that hands on bytes as they come, too."""

    def pieces(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """As `stream`, but byte for byte: what a program prints has no lines that must be whole."""
        ...

    async def close(self) -> None:
        """Cut all that is under way."""
        ...
