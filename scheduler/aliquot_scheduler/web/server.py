"""The centre's two servers: one over TLS for Kubernetes, one in plain HTTP for probes and Prometheus."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import cast

from aiohttp import web

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_scheduler.web.calls import NOTHING_OFFERED, Offered, Stranger
from aliquot_scheduler.web.doorway import Doorway
from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.idle import IdleConnections
from aliquot_scheduler.web.pages import StatusPages
from aliquot_scheduler.web.peers import why_stranger
from aliquot_scheduler.web.settings import EVERY, WebSettings
from aliquot_scheduler.web.short_way import ShortWay
from aliquot_scheduler.web.tls import Tls

log = logging.getLogger(__name__)

Connected = Callable[[], Collection[asyncio.Transport]]
LOOK_WHILE_LEAVING = 0.1
# A burst of bindings comes on as many new connections.
_BACKLOG = 128


class ListenError(ClusterError):
    """An address that can't be listened at."""


class CentreServer:
    """Serves until `run` is cancelled; then what is under way is let to end."""

    def __init__(
        self,
        *,
        settings: WebSettings,
        tls: Tls,
        routes: Iterable[web.RouteDef],
        pages: StatusPages,
        clock: Clock,
        failed: FailedHandshakes,
        plain: Iterable[web.RouteDef] = (),
        offered: Offered = NOTHING_OFFERED,
    ) -> None:
        """`routes` are served over TLS, `plain` beside the status pages without; `offered` is served the short way."""
        self._settings = settings
        self._clock = clock
        self._tls = tls
        self._failed = failed
        self._routes = list(routes)
        self._plain = list(plain)
        self._offered = offered
        self._pages = pages
        # Where it listens, once `serving` is set.
        self.port = 0
        self.status_port = 0
        self.serving = asyncio.Event()
        # Of calls; those who ask for status pages ask again.
        self._idle = IdleConnections(clock=clock)
        self._callers: Connected = frozenset

    async def run(self) -> None:
        """Serve, and keep the certificate fresh."""
        async with AsyncExitStack() as stack:
            stack.callback(self._pages.close)
            one = self._settings
            plain = [*self._pages.routes(), *self._plain]
            resting = IdleConnections(clock=self._clock)
            self.status_port, read = await self._listen(
                stack, plain, address=one.status_address, port=one.status_port, idle=resting
            )
            self.port, self._callers = await self._listen(
                stack,
                self._routes,
                address=one.address,
                port=one.port,
                idle=self._idle,
                tls=self._tls.listening,
                offered=self._offered,
            )
            stack.callback(self.serving.clear)
            self.serving.set()
            log.info("serving", extra={"port": self.port, "status_port": self.status_port})
            async with asyncio.TaskGroup() as work:
                for run in (self._tls.run, partial(resting.run, read), partial(self._idle.run, self._callers)):
                    work.create_task(run())

    async def drain(self) -> None:
        """Have callers close their connections by themselves; whoever comes anew is answered too, once."""
        self._idle.last_answers = True
        until = self._clock.monotonic() + self._settings.drain
        while self._callers() and self._clock.monotonic() < until:
            await self._clock.sleep(LOOK_WHILE_LEAVING)

    async def _listen(
        self,
        stack: AsyncExitStack,
        routes: Iterable[web.RouteDef],
        *,
        address: str,
        port: int,
        idle: IdleConnections,
        tls: ssl.SSLContext | None = None,
        offered: Offered = NOTHING_OFFERED,
    ) -> tuple[int, Connected]:
        """The port, and who is connected there."""
        patience = self._settings.leave
        app = web.Application(middlewares=[idle.middleware()])
        app.add_routes(routes)
        # Nobody who should call sends anything compressed, and a small body must not become a large one.
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, auto_decompress=False, shutdown_timeout=patience
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        long_way = cast("web.Server", runner.server)
        short = ShortWay(offered=offered, long_way=long_way, idle=idle)
        doorway = Doorway(inside=short, idle=idle, failed=self._failed, tls=tls)
        server = await _listening(doorway, address=address, port=port)
        stack.push_async_callback(short.leave, patience=patience)
        stack.push_async_callback(doorway.leave)
        stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1]), partial(_connected, short, long_way)


async def _listening(protocols: Callable[[], asyncio.Protocol], *, address: str, port: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        host = None if address == EVERY else address.strip("[]")
        return await loop.create_server(protocols, host, port, backlog=_BACKLOG)
    except OSError as error:
        where = f"{address}:{port}"
        raise ListenError(f"can't listen: {error.strerror}", where=where, remedy="who else does?") from error


def _connected(short: ShortWay, long_way: web.Server) -> set[asyncio.Transport]:
    """By whichever way."""
    return short.transports() | {one.transport for one in long_way.connections if one.transport is not None}


def strangers(*, allowed: Collection[str], clock: Clock) -> Stranger:
    """What the extender asks about whoever calls."""
    names = frozenset(allowed)

    def stranger(transport: asyncio.BaseTransport | None) -> str:
        certificate = transport.get_extra_info("peercert") if transport else None
        return why_stranger(certificate, allowed=names, now=clock.wall())

    return stranger
