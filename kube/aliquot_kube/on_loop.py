"""Ways to an API server on the event loop itself, without threads: what they have in common.

Connections stay, and each carries one question at a time. What a way in particular adds is where it leads and who we
say we are, asked anew for each question.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlencode

from aliquot_kube.errors import UnreachableError, error_from_response
from aliquot_kube.questions import Question, Response
from aliquot_kube.spoken import Answer, Connection, lines_of, said


@dataclass(frozen=True, kw_only=True)
class Way:
    """Where the server is, and what every question to it says; equal ways may use each other's connections."""

    host: str
    port: int
    # Before every path.
    prefix: str
    # Lines of a request's head, each with its end; a token that was renewed needs no other connection.
    headers: str = field(compare=False)
    tls: ssl.SSLContext | None = None
    # What its certificate must say; the host, if empty.
    server_name: str = ""


class LoopTransport(ABC):
    """Asks over connections that stay."""

    def __init__(self) -> None:
        self._idle: list[tuple[Way, Connection]] = []
        self._open: set[Connection] = set()

    @abstractmethod
    async def way(self) -> Way:
        """The way as it is now."""

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer; whatever is no 2xx is raised as an `ApiError`."""
        try:
            async with asyncio.timeout(question.timeouts.total), self.asked(question) as answer:
                return Response(status=answer.status, headers=answer.headers, body=await answer.whole())
        except TimeoutError as error:
            raise _too_late(question) from error

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask and get the answer line by line; entering raises what is no 2xx, leaving ends it at once."""
        async with self.pieces(question) as pieces:
            yield lines_of(pieces, question)

    @asynccontextmanager
    async def pieces(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """The same as it comes, byte for byte."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(question.timeouts.total):
                    answer = await stack.enter_async_context(self.asked(question))
            except TimeoutError as error:
                raise _too_late(question) from error
            yield answer.pieces()

    async def close(self) -> None:
        """Cut all that is under way."""
        for connection in list(self._open):
            connection.cut()
        self._open.clear()
        self._idle.clear()

    @asynccontextmanager
    async def asked(self, question: Question) -> AsyncIterator[Answer]:
        """Ask, and have the answer's head; leaving keeps the connection if the answer was read to its end."""
        way = await self.way()
        connection = self._take(way) or await self.connect(way, question)
        try:
            answer = await connection.ask(_text(way, question), question)
            if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                raise error_from_response(
                    code=answer.status, headers=answer.headers, body=await answer.whole(), where=question.where
                )
            yield answer
        finally:
            if connection.is_ready:
                self._idle.append((way, connection))
            else:
                self._drop(connection)

    def _take(self, way: Way) -> Connection | None:
        """A connection that is idle, goes the same way, and that the server has not closed meanwhile."""
        while self._idle:
            went, connection = self._idle.pop()
            if not connection.reader.at_eof() and (went is way or went == way):
                return connection
            self._drop(connection)
        return None

    async def connect(self, way: Way, question: Question) -> Connection:
        """One connection more."""
        name = (way.server_name or way.host) if way.tls else None
        try:
            async with asyncio.timeout(question.timeouts.connect):
                reader, writer = await asyncio.open_connection(way.host, way.port, ssl=way.tls, server_hostname=name)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"no connection: {said(error)}", where=question.where) from error
        connection = Connection(reader, writer)
        self._open.add(connection)
        return connection

    def _drop(self, connection: Connection) -> None:
        connection.cut()
        self._open.discard(connection)


def _text(way: Way, question: Question) -> bytes:
    query = f"?{urlencode(question.query)}" if question.query else ""
    kind = f"Content-Type: {question.content_type}\r\n" if question.content_type else ""
    body = question.body or b""
    size = f"Content-Length: {len(body)}\r\n" if body or question.method not in {"GET", "HEAD"} else ""
    head = f"{question.method} {way.prefix}{question.path}{query} HTTP/1.1\r\n{way.headers}{kind}{size}\r\n"
    return head.encode() + body


def _too_late(question: Question) -> UnreachableError:
    return UnreachableError(f"no answer within {question.timeouts.total:g} s", where=question.where)
