"""The way to an API server on this machine: HTTP without TLS, and perhaps a token.

It stands beside `HttpTransport` for one reason: commands of a person start anew each time. The official client's loader
costs 0.25 s to import and urllib3 0.05 s; a kubeconfig that says no more than an http address, as `aliquot up` writes
it, needs neither. What needs more (TLS, a proxy, another user) goes the other way.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec

from aliquot_kube.errors import GarbledError, UnreachableError, error_from_response
from aliquot_kube.lines import LineSplitter
from aliquot_kube.questions import Question, Response

_CHUNK = 64 * 1024
_LONGEST_BODY = 256 * 1024 * 1024
_SCHEME = "http"


class PlainServer(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is, and the namespace that is meant where none is said."""

    url: str
    token: str = ""
    namespace: str = ""


class PlainTransport:
    """Asks over connections that stay."""

    def __init__(self, server: PlainServer, *, user_agent: str = "aliquot") -> None:
        parts = urlsplit(server.url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._prefix = parts.path.rstrip("/")
        token = f"Authorization: Bearer {server.token}\r\n" if server.token else ""
        self._headers = f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: {user_agent}\r\n{token}"
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer; whatever is no 2xx is raised as an `ApiError`."""
        try:
            async with asyncio.timeout(question.timeouts.total), self._asked(question) as answer:
                return Response(status=answer.status, headers=answer.headers, body=await answer.whole())
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {question.timeouts.total:g} s", where=question.where) from error

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask and get the answer line by line; entering raises what is no 2xx, leaving ends it at once."""
        async with self.pieces(question) as pieces:
            yield _lines(pieces, question)

    @asynccontextmanager
    async def pieces(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """The same as it comes, byte for byte."""
        asking = self._asked(question)
        try:
            async with asyncio.timeout(question.timeouts.total):
                answer = await asking.__aenter__()
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {question.timeouts.total:g} s", where=question.where) from error
        try:
            yield answer.pieces()
        finally:
            await asking.__aexit__(None, None, None)

    async def close(self) -> None:
        """Cut all that is under way."""
        for connection in list(self._open):
            connection.cut()
        self._open.clear()
        self._idle.clear()

    @asynccontextmanager
    async def _asked(self, question: Question) -> AsyncIterator[_Answer]:
        connection = self._take() or await self._connect(question)
        try:
            answer = await connection.ask(self._text(question), question)
            if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                raise error_from_response(
                    code=answer.status, headers=answer.headers, body=await answer.whole(), where=question.where
                )
            yield answer
        finally:
            if connection.is_ready:
                self._idle.append(connection)
            else:
                connection.cut()
                self._open.discard(connection)

    def _take(self) -> _Connection | None:
        """A connection that is idle and that the server has not closed meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof():
                return connection
            connection.cut()
            self._open.discard(connection)
        return None

    async def _connect(self, question: Question) -> _Connection:
        try:
            async with asyncio.timeout(question.timeouts.connect):
                reader, writer = await asyncio.open_connection(self._host, self._port)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"no connection: {_said(error)}", where=question.where) from error
        connection = _Connection(reader, writer)
        self._open.add(connection)
        return connection

    def _text(self, question: Question) -> bytes:
        query = f"?{urlencode(question.query)}" if question.query else ""
        kind = f"Content-Type: {question.content_type}\r\n" if question.content_type else ""
        body = question.body or b""
        size = f"Content-Length: {len(body)}\r\n" if body or question.method not in {"GET", "HEAD"} else ""
        head = f"{question.method} {self._prefix}{question.path}{query} HTTP/1.1\r\n{self._headers}{kind}{size}\r\n"
        return head.encode() + body


class _Connection:
    """One connection; it is ready for another question once an answer was read to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer
        self.is_ready = True

    async def ask(self, text: bytes, question: Question) -> _Answer:
        self.is_ready = False
        try:
            self._writer.write(text)
            async with asyncio.timeout(question.timeouts.silence):
                await self._writer.drain()
                head = await self.reader.readuntil(b"\r\n\r\n")
        except (OSError, EOFError, TimeoutError) as error:
            raise UnreachableError(f"no answer: {_said(error)}", where=question.where) from error
        except asyncio.LimitOverrunError as error:
            raise GarbledError("an answer without an end of its head", where=question.where) from error
        return _Answer(self, head, question)

    def cut(self) -> None:
        """End it now: asyncio alone would close the socket in the loop's next round, and a loop may end before."""
        self.is_ready = False
        with suppress(OSError):
            self._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._writer.transport.abort()


class _Answer:
    """An answer as it comes."""

    def __init__(self, connection: _Connection, head: bytes, question: Question) -> None:
        self._connection = connection
        self._question = question
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not status.isdecimal():
            raise UnreachableError("no answer in HTTP", where=question.where)
        self.status = int(status)
        pairs = (line.partition(":") for line in lines if line)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}

    async def whole(self) -> bytes:
        """All of its body."""
        found = [piece async for piece in self.pieces()]
        return b"".join(found)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Its body, piece by piece."""
        size = 0
        try:
            async for piece in self._body():
                size += len(piece)
                if size > _LONGEST_BODY and "content-length" in self.headers:
                    raise GarbledError(f"an answer longer than {_LONGEST_BODY} bytes", where=self._question.where)
                yield piece
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            raise UnreachableError(f"no whole answer: {_said(error)}", where=self._question.where) from error
        self._connection.is_ready = self.headers.get("connection", "").lower() != "close"

    async def _body(self) -> AsyncIterator[bytes]:
        if self.status == HTTPStatus.NO_CONTENT:
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int((await self._read_line()).partition(b";")[0], 16):
                async for piece in self._exactly(size):
                    yield piece
                await self._read_line()
            await self._read_line()
        elif "content-length" in self.headers:
            async for piece in self._exactly(int(self.headers["content-length"])):
                yield piece
        else:
            self.headers["connection"] = "close"
            while piece := await self._read(_CHUNK):
                yield piece

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            piece = await self._read(min(size, _CHUNK))
            if not piece:
                raise EOFError("it was cut")
            size -= len(piece)
            yield piece

    async def _read(self, most: int) -> bytes:
        async with asyncio.timeout(self._question.timeouts.silence):
            return await self._connection.reader.read(most)

    async def _read_line(self) -> bytes:
        async with asyncio.timeout(self._question.timeouts.silence):
            line = await self._connection.reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError("it was cut")
        return line.strip()


def _said(error: Exception) -> str:
    """What has happened, for people: what asyncio says is of its own buffers and calls."""
    if isinstance(error, EOFError):
        return "it was closed"
    if isinstance(error, TimeoutError):
        return "silence for too long"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


async def _lines(pieces: AsyncIterator[bytes], question: Question) -> AsyncGenerator[bytes]:
    splitter = LineSplitter()
    async for piece in pieces:
        try:
            lines = splitter.feed(piece)
        except GarbledError as error:
            raise GarbledError(error.what, where=question.where) from error
        for line in lines:
            yield line


class _Named(msgspec.Struct, frozen=True):
    name: str


class _ClusterPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: str


class _NamedCluster(_Named, frozen=True):
    cluster: _ClusterPart


class _NamedUser(_Named, frozen=True):
    user: dict[str, str]


class _ContextPart(msgspec.Struct, frozen=True):
    cluster: str
    user: str
    namespace: str = ""


class _NamedContext(_Named, frozen=True):
    context: _ContextPart


class _Kubeconfig(msgspec.Struct, frozen=True, rename={"current": "current-context"}):
    clusters: list[_NamedCluster]
    users: list[_NamedUser]
    contexts: list[_NamedContext]
    current: str = ""


def plain_server(path: Path, *, context: str = "") -> PlainServer | None:
    """The server that a kubeconfig in JSON says in full by address and token; None where it needs the loader."""
    try:
        read = msgspec.json.decode(path.read_bytes(), type=_Kubeconfig)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    wanted = context or read.current
    chosen = next((one.context for one in read.contexts if one.name == wanted), None)
    if chosen is None:
        return None
    server = next((one.cluster.server for one in read.clusters if one.name == chosen.cluster), "")
    user = next((one.user for one in read.users if one.name == chosen.user), None)
    if user is None or user.keys() - {"token"} or urlsplit(server).scheme != _SCHEME:
        return None
    return PlainServer(url=server, token=user.get("token", ""), namespace=chosen.namespace)
