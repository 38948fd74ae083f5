"""POSTs over connections that stay: what webhooks and the extender are asked by, two of each for every pod.

aiohttp's client took 220 to 285 µs of CPU for one such question, this takes 130 to 160 (run): a URL that is known needs
no parsing, and an answer that is small no stream. `AnswerReader` is pure: bytes in, an answer out. What must always
hold: a connection carries one question at a time, and is used again only after an answer that was read to its own end.
"""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus

import msgspec

# As many as this are under way at once; who comes then waits, within his own time.
_AT_ONCE = 100
_HEAD_ENDS = b"\r\n\r\n"
_LONGEST_HEAD = 64 * 1024


class PostError(Exception):
    """There was no answer, or none that can be read."""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    status: int
    body: bytes


class AnswerReader:
    """Reads one answer of HTTP/1.1, however it is cut into pieces."""

    def __init__(self, *, most: int) -> None:
        """A body longer than `most` is refused."""
        self._most = most
        self._held = bytearray()
        self._head: _Head | None = None
        self.answer: Posted | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes in; `answer` is there once it is whole."""
        self._held += data
        while self._head is None or self._head.status < HTTPStatus.OK:
            if not self._take_head():
                return
        self._take_body(self._head)

    def end(self) -> Posted:
        """Take in that nothing more comes: the end of an answer that names no length, too early for any other."""
        if self._head is None or not self._head.until_close or self._head.status < HTTPStatus.OK:
            raise PostError("the connection was closed before the answer's end")
        return self._finish(self._head, bytes(self._held))

    @property
    def may_go_on(self) -> bool:
        """Whether the connection is good for another question."""
        return self.answer is not None and self._head is not None and not self._head.ends_connection and not self._held

    def _take_head(self) -> bool:
        head, found, rest = self._held.partition(_HEAD_ENDS)
        if not found:
            if len(head) > _LONGEST_HEAD:
                raise PostError("the answer's head has no end")
            return False
        self._head, self._held = _head(bytes(head)), rest
        return True

    def _take_body(self, head: _Head) -> None:
        if (head.length or 0) > self._most or len(self._held) > 2 * self._most:
            raise PostError("the answer is too long")
        if head.chunked:
            self._take_chunks(head)
        elif head.length is not None and len(self._held) >= head.length:
            body = bytes(self._held[: head.length])
            del self._held[: head.length]
            self._finish(head, body)

    def _take_chunks(self, head: _Head) -> None:
        # From the beginning each time: answers are small, and come in one piece but for the odd one.
        whole, at = bytearray(), 0
        while (line_ends := self._held.find(b"\r\n", at)) >= 0:
            size = _chunk_size(bytes(self._held[at:line_ends]))
            at = line_ends + 2 + size + 2
            if size == 0:
                self._end_chunks(head, bytes(whole), trailer=line_ends)
                return
            if len(self._held) < at:
                return
            whole += self._held[line_ends + 2 : at - 2]

    def _end_chunks(self, head: _Head, body: bytes, *, trailer: int) -> None:
        ends = self._held.find(_HEAD_ENDS, trailer)
        if ends >= 0:
            del self._held[: ends + len(_HEAD_ENDS)]
            self._finish(head, body)

    def _finish(self, head: _Head, body: bytes) -> Posted:
        if len(body) > self._most:
            raise PostError("the answer is too long")
        self.answer = Posted(status=head.status, body=body)
        return self.answer


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    length: int | None
    chunked: bool
    closes: bool

    @property
    def until_close(self) -> bool:
        return self.length is None and not self.chunked

    @property
    def ends_connection(self) -> bool:
        return self.closes or self.until_close


def _head(text: bytes) -> _Head:
    first, *lines = text.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise PostError("the answer is no HTTP")
    said = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status, length = int(rest[:3]), said.get("content-length")
    if length is not None and not length.isdecimal():
        raise PostError(f"the answer's length is no number: {length}")
    if status == HTTPStatus.NO_CONTENT:
        length = "0"
    chunked = "chunked" in said.get("transfer-encoding", "").lower()
    closes = said.get("connection", "").lower() == "close" or version == "HTTP/1.0"
    return _Head(status=status, length=None if length is None else int(length), chunked=chunked, closes=closes)


def _chunk_size(line: bytes) -> int:
    try:
        size = int(line.partition(b";")[0], 16)
    except ValueError as error:
        raise PostError("the answer's pieces have no length") from error
    if size < 0:
        raise PostError("the answer's pieces have no length")
    return size


class _Connection(asyncio.Protocol):
    """One connection; `gone` is set when it is."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader(most=0)
        self._waiting: asyncio.Future[Posted] | None = None

    async def ask(self, text: bytes, *, most: int) -> Posted:
        if self._transport is None:
            raise PostError("the connection is gone")
        self._reader = AnswerReader(most=most)
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(text)
        return await self._waiting

    @property
    def may_go_on(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._reader.may_go_on

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            # Nobody has asked: whatever this is, what follows could not be told from an answer.
            self.cut()
            return
        try:
            self._reader.feed(data)
        except PostError as error:
            self._waiting.set_exception(error)
            return
        if self._reader.answer is not None:
            self._waiting.set_result(self._reader.answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.gone.set()
        if self._waiting is None or self._waiting.done():
            return
        if exc is not None:
            self._waiting.set_exception(PostError(str(exc) or type(exc).__name__))
            return
        try:
            self._waiting.set_result(self._reader.end())
        except PostError as error:
            self._waiting.set_exception(error)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and by what name it must show itself."""

    host: str
    port: int
    server_name: str = ""


class Poster:
    """Asks one server."""

    def __init__(self, place: Place, *, trust: ssl.SSLContext | None) -> None:
        """Without trust it is asked in clear."""
        self._place = place
        self._trust = trust
        host = f"[{place.host}]" if ":" in place.host else place.host
        self._head = f"Host: {host}:{place.port}\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def post(self, path: str, body: bytes, *, timeout: float, most: int) -> Posted:  # noqa: ASYNC109 - it is the webhook's own, as its configuration says
        """Ask; raises `TimeoutError`, `OSError` or `PostError` where there is no answer."""
        text = f"POST {path} HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        async with asyncio.timeout(timeout), self._slots:
            connection = self._take() or await self._connect()
            try:
                return await connection.ask(text, most=most)
            finally:
                self._put_back(connection)

    async def close(self) -> None:
        """Cut all connections."""
        for connection in self._open:
            connection.cut()
        await asyncio.gather(*(connection.gone.wait() for connection in self._open))
        self._open.clear()

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.may_go_on:
                return connection
            self._put_back(connection)
        return None

    def _put_back(self, connection: _Connection) -> None:
        if connection.may_go_on:
            self._idle.append(connection)
        else:
            connection.cut()

    async def _connect(self) -> _Connection:
        place = self._place
        self._open = {one for one in self._open if not one.gone.is_set()}
        name = (place.server_name or place.host) if self._trust else None
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, place.host, place.port, ssl=self._trust, server_hostname=name
        )
        self._open.add(connection)
        return connection
