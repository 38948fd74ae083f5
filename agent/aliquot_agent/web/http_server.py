"""A few pages over HTTP/1.1, for Prometheus and the kubelet's probes; nothing else is understood.

The agent has no HTTP server of a library: aiohttp alone takes 10 MiB, and the standard library's own gives every
connection a thread for as long as the peer likes. What must always hold, whatever is sent: one answer per connection
and then it is closed; a request is read up to 8 KiB; an exchange ends in time; no more than so many run at once,
and the longest of them gives way when it is slow; nothing that a peer does raises out of here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

LONGEST_REQUEST = 8 * 1024
MOST_AT_ONCE = 32
# Reading the request, making the page, and the peer's taking it, together.
PATIENCE = 10.0
# Whoever takes longer gives way when all places are taken: else 32 silent peers could keep the kubelet's probe out
# until it kills the agent. A page of a full node takes 20 ms.
SLOW = 1.0
# Another process may still have the port: the agent that we replace.
BIND_AGAIN = 5.0

_TEXT = "text/plain; charset=utf-8"
_REQUEST = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2000}) HTTP/1\.[01]\r\n")
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Request Too Large"} | {
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A page, or why there is none."""

    status: int = 200
    body: bytes = b""
    content_type: str = _TEXT


Page = Callable[[], Awaitable[Answer]]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is understood; `head` wants the answer without its body."""

    path: str
    head: bool


def read(request: bytes) -> Asked | Answer:
    """Understand a request up to its empty line, or say why not."""
    match = _REQUEST.match(request)
    if match is None:
        return Answer(status=400, body=b"this is not HTTP/1.1\n")
    method, target = match[1], match[2]
    if method not in (b"GET", b"HEAD"):
        return Answer(status=405, body=b"only GET and HEAD\n")
    return Asked(path=target.decode("ascii").partition("?")[0], head=method == b"HEAD")


def written(answer: Answer, *, head: bool = False) -> bytes:
    """An answer as it travels."""
    lines = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *(("Allow: GET, HEAD",) if answer.status == 405 else ()),  # noqa: PLR2004 - HTTP's own number
        "Cache-Control: no-store",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode() + (b"" if head else answer.body)


class HttpServer:
    """Serves pages by their paths."""

    def __init__(self, *, address: str, port: int, pages: Mapping[str, Page], clock: Clock) -> None:
        """A port of 0 is any that is free; `ports` then tells."""
        self._address = address.strip("[]")
        self._port = port
        self._pages = pages
        self._clock = clock
        # Since when, the longest first.
        self._exchanges: dict[asyncio.Task[None], float] = {}
        self.ports: tuple[int, ...] = ()
        self.serving = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; a port that is taken is tried again, for slices must not wait for a page."""
        while True:
            try:
                server = await asyncio.start_server(
                    self._connected, self._address, self._port, limit=LONGEST_REQUEST, backlog=MOST_AT_ONCE
                )
            except OSError as error:
                log.error("metrics can't be served: %s", error, extra={"address": self._address, "port": self._port})  # noqa: TRY400 - the text says all
                await self._clock.sleep(BIND_AGAIN)
                continue
            self.ports = tuple(socket.getsockname()[1] for socket in server.sockets)
            log.info("metrics are served", extra={"address": self._address, "ports": self.ports})
            self.serving.set()
            try:
                await asyncio.Event().wait()
            finally:
                # Not `serve_forever`: from 3.12 on it waits for its peers to leave before it lets itself be cancelled.
                self.serving.clear()
                server.close()
                await self._hang_up()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._exchanges) >= MOST_AT_ONCE and not self._make_room():
            writer.transport.abort()
            return
        exchange = asyncio.ensure_future(self._exchange(reader, writer))
        self._exchanges[exchange] = self._clock.monotonic()
        try:
            if not await settled(exchange, clock=self._clock, seconds=PATIENCE):
                log.debug("a peer took too long")
        finally:
            self._exchanges.pop(exchange, None)
            exchange.cancel()
            await asyncio.gather(exchange, return_exceptions=True)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """End the longest exchange if it is slow; tell whether it was."""
        longest, since = next(iter(self._exchanges.items()))
        if self._clock.monotonic() - since < SLOW:
            return False
        del self._exchanges[longest]
        return longest.cancel()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _request(reader)
            if isinstance(asked, Asked):
                writer.write(written(await self._page(asked.path), head=asked.head))
            elif asked is not None:
                writer.write(written(asked))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError as error:
            log.debug("a peer hung up: %s", error)

    async def _page(self, path: str) -> Answer:
        page = self._pages.get(path)
        if page is None:
            return Answer(status=404, body=f"there are {', '.join(sorted(self._pages))}\n".encode())
        try:
            return await page()
        except Exception:  # a defect of ours: the page is missing, and the agent goes on
            log.exception("a page could not be made", extra={"path": path})
            return Answer(status=500, body=b"the agent's log says why\n")

    async def _hang_up(self) -> None:
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> Asked | Answer | None:
    """Read and understand a request; None if the peer left without one."""
    try:
        return read(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        return Answer(status=431, body=f"more than {LONGEST_REQUEST} bytes\n".encode())
    except asyncio.IncompleteReadError as error:
        return read(error.partial) if error.partial else None
