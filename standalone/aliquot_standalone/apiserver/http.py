"""The HTTP front: the only part of the server that does I/O. It carries requests to `Frontend` and streams to clients.

A watch pulls from history at its reader's pace, so a slow reader holds up nobody: while its socket is full it does not
pull, and once history has passed it it is told so (410) and cut. A reader that does not even take that is cut without.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import socket
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from aiohttp import web

from .consulting import Nobody, WebhookCaller, answered_by
from .exchange import Answer, Log, Request, Stream
from .failures import ApiError, bad_request, internal, too_large, unauthorized
from .logs import LogsMissingError
from .streaming import Timing, Watchers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aliquot_core.clock import Clock

    from .frontend import Frontend
    from .logs import LogSource, LogWish

_log = logging.getLogger(__name__)
_MOST_BODY = 3 * 1024 * 1024


class HttpServer:
    """Serves one `Frontend` on a loopback port."""

    def __init__(
        self,
        *,
        frontend: Frontend,
        clock: Clock,
        tokens: Mapping[str, str] | None = None,
        timing: Timing | None = None,
        caller: WebhookCaller | None = None,
        logs: LogSource | None = None,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        """`trouble` is what every reader should know of the server now, as a warning beside each answer."""
        self._logs = logs
        self._trouble = trouble
        # For whoever asks without a wire.
        self.frontend = frontend
        self.caller = caller or Nobody()
        self._clock = clock
        self._tokens = tokens
        self._watchers = Watchers(store=frontend.store, clock=clock, timing=timing or Timing())
        self._runner: web.AppRunner | None = None
        self._listener: socket.socket | None = None
        self.url = ""

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `url` then says where."""
        application = web.Application(client_max_size=_MOST_BODY)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        self._listener = socket.create_server((host, port))
        await web.SockSite(self._runner, self._listener).start()
        where = self._listener.getsockname()
        self.url = f"http://{where[0]}:{where[1]}"
        _log.info("api server listens", extra={"url": self.url})

    async def close(self) -> None:
        """End all watches and stop listening; who does not read is cut off."""
        self._watchers.end_all()
        if self._listener:
            await _hear_no_more(self._listener)
        if self._runner:
            open_still = [one.transport for one in self._runner.server.connections] if self._runner.server else []
            await self._runner.cleanup()
            for transport in open_still:
                if transport is not None:
                    transport.abort()

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        try:
            request = await self._read(http)
            conversation = self.frontend.converse(request, now=self._clock.wall())
            answer = await answered_by(self.caller, conversation)
            if isinstance(answer, Stream):
                return await self._stream(http, answer)
            if isinstance(answer, Log):
                return await self._log(http, answer.wish)
        except ApiError as error:
            answer = _failed(error)
        except web.HTTPRequestEntityTooLarge:
            answer = _failed(too_large(_MOST_BODY))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the edge: whatever it is, the client gets a Status and the log the rest
            reference = f"{type(error).__name__} at {http.method} {http.path}"
            _log.exception("request failed by our own defect", extra={"request": reference})
            answer = _failed(internal(reference))
        response = web.Response(status=answer.code, body=answer.body, content_type=answer.content_type)
        trouble = self._trouble()
        for warning in (*answer.warnings, *([trouble] if trouble else [])):
            response.headers.add("Warning", f"299 - {_quoted(warning)}")
        return response

    async def _read(self, http: web.Request) -> Request:
        parts = http.rel_url.raw_path.strip("/").split("/")
        return Request(
            method=http.method,
            path=tuple(unquote(part) for part in parts if part),
            # Few have any, and an empty one is made as dearly as a full one.
            query=dict(http.query) if http.rel_url.raw_query_string else {},
            accept=http.headers.get("Accept", ""),
            content_type=http.headers.get("Content-Type", ""),
            body=await http.read() if http.can_read_body else b"",
            agent=http.headers.get("User-Agent", ""),
            user=self._user(http.headers.get("Authorization", "")),
        )

    def _user(self, authorization: str) -> str:
        if self._tokens is None:
            return "system:admin"
        token = _token(authorization)
        if token not in self._tokens:
            raise unauthorized()
        return self._tokens[token]

    async def _stream(self, http: web.Request, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        transport = http.transport
        try:
            await self._watchers.serve(
                stream, write=response.write, abort=transport.abort if transport else lambda: None
            )
            await response.write_eof()
        except ConnectionError:
            _log.debug("watcher went away", extra={"table": stream.watch.table})
        return response

    async def _log(self, http: web.Request, wish: LogWish) -> web.StreamResponse:
        if self._logs is None:
            raise bad_request("nothing here runs containers, so there are no logs")
        pieces = self._logs.read(wish)
        try:
            # Whether there is a log is known before the answer begins.
            first = await anext(pieces, b"")
        except LogsMissingError as error:
            raise bad_request(str(error)) from error
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Cache-Control": "no-cache"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        try:
            await response.write(first)
            async for piece in pieces:
                await response.write(piece)
            await response.write_eof()
        except ConnectionError:
            _log.debug("a reader of logs went away", extra={"pod": wish.pod})
        finally:
            await pieces.aclose()
        return response


def _token(authorization: str) -> str:
    """What a client says to be known by: as a token, or as the password of an address (see `embedded.kubeconfig`)."""
    scheme, _, said = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return said
        case "basic":
            with contextlib.suppress(ValueError):
                return base64.b64decode(said, validate=True).decode().partition(":")[2]
    return ""


async def _hear_no_more(listener: socket.socket) -> None:
    """Take no more connections, but let those in that were just taken: asyncio loses them unclosed with the server."""
    asyncio.get_running_loop().remove_reader(listener.fileno())
    await asyncio.sleep(0)


def _quoted(text: str) -> str:
    plain = "".join(one if one.isprintable() else " " for one in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _failed(error: ApiError) -> Answer:
    return Answer(code=error.code, body=msgspec.json.encode(error.status()))
