"""The centre's way to the API server: on the event loop, with the official client's configuration.

A write through urllib3 and a pool of threads takes 0.5 ms of CPU, and each event of a watch a thread of its own that
wakes the loop; the centre does both for every pod. It has the memory for `asyncio`'s TLS, and the loop to itself, which
an agent has not (`transport.py`). What only urllib3 can (proxies, a host name of one's own choice) still goes there.

What must always hold: whatever may run a plugin or read a file of credentials is done in a thread, since decisions
would wait for it; so who we are is looked up again when it is older than some seconds, or when the server does not know
us any more.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import urllib3

from aliquot_core.clock import Clock
from aliquot_kube.credentials import Access, Credentials
from aliquot_kube.errors import UnauthorizedError, UnreachableError
from aliquot_kube.on_loop import LoopTransport, Way
from aliquot_kube.questions import PieceTransport, Question, Response
from aliquot_kube.spoken import Answer, Connection
from aliquot_kube.transport import HttpTransport

# A token of the pod's own is read again every minute, so it may be older than this anyway.
FRESH = 5.0
# Requests that are under way at once: a burst of bindings waits here, not at the API server's limits.
MOST = 32
_PORTS = {"http": 80, "https": 443}


def swiftest(*, credentials: Credentials, clock: Clock, user_agent: str) -> PieceTransport:
    """On the loop where that can be, else on threads."""
    if can_be_swift(credentials.access()):
        return SwiftTransport(credentials=credentials, clock=clock, user_agent=user_agent)
    return HttpTransport(credentials=credentials, user_agent=user_agent, workers=MOST)


def can_be_swift(access: Access) -> bool:
    """Whether these credentials ask for nothing that only urllib3 can: a proxy, or another name in a certificate."""
    return type(access.pools) is urllib3.PoolManager and not access.pools.connection_pool_kw.get("assert_hostname")


class SwiftTransport(LoopTransport):
    """Fulfils `PieceTransport`; `close` also ends the idle connections of the credentials."""

    def __init__(self, *, credentials: Credentials, clock: Clock, user_agent: str = "aliquot") -> None:
        super().__init__()
        self._credentials = credentials
        self._clock = clock
        self._user_agent = user_agent
        self._places = asyncio.Semaphore(MOST)
        self._looking = asyncio.Lock()
        self._known: tuple[Access, Way] | None = None
        self._looked_at = float("-inf")

    async def way(self) -> Way:
        """As of some seconds ago at the most."""
        return (await self._now())[1]

    async def request(self, question: Question) -> Response:
        """Ask and get the whole answer; whatever is no 2xx is raised as an `ApiError`."""
        async with self._places:
            return await super().request(question)

    @asynccontextmanager
    async def asked(self, question: Question) -> AsyncIterator[Answer]:
        """Once more with what is loaded anew, if the server does not know us."""
        access, _ = await self._now()
        asking = super().asked(question)
        try:
            answer = await asking.__aenter__()
        except UnauthorizedError:
            await self._distrust(access)
            asking = super().asked(question)
            answer = await asking.__aenter__()
        except UnreachableError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                # The CA or our certificate may have been rotated.
                await self._distrust(access)
            raise
        try:
            yield answer
        finally:
            await asking.__aexit__(None, None, None)

    async def connect(self, way: Way, question: Question) -> Connection:
        """With what the official client sets of its sockets: a peer that vanished is noticed."""
        connection = await super().connect(way, question)
        access, _ = await self._now()
        for option in access.pools.connection_pool_kw.get("socket_options") or ():
            connection.socket.setsockopt(*option)
        return connection

    async def close(self) -> None:
        """Cut all that is under way."""
        await super().close()
        self._credentials.close()

    async def _now(self) -> tuple[Access, Way]:
        if self._known is None or not self._is_fresh():
            async with self._looking:
                if self._known is None or not self._is_fresh():
                    self._known = await asyncio.to_thread(self._look, self._known)
                    self._looked_at = self._clock.monotonic()
        return self._known

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._looked_at < FRESH

    async def _distrust(self, access: Access) -> None:
        await asyncio.to_thread(self._credentials.distrust, access)
        self._looked_at = float("-inf")

    def _look(self, before: tuple[Access, Way] | None) -> tuple[Access, Way]:
        """In a thread; what was there stays as long as nothing is new, and its connections with it."""
        access = self._credentials.access()
        if before is None or before[0].pools is not access.pools or before[0].host != access.host:
            return access, self._made(access, tls=None)
        if before[0].headers == access.headers:
            return before
        return access, self._made(access, tls=before[1].tls)

    def _made(self, access: Access, *, tls: ssl.SSLContext | None) -> Way:
        parts = urlsplit(access.host)
        settings = access.pools.connection_pool_kw
        given = "".join(f"{name}: {value}\r\n" for name, value in access.headers)
        return Way(
            host=parts.hostname or "",
            port=parts.port or _PORTS[parts.scheme],
            prefix=parts.path.rstrip("/"),
            headers=f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: {self._user_agent}\r\n{given}",
            tls=(tls or _context(settings)) if parts.scheme == "https" else None,
            server_name=settings.get("server_hostname") or "",
        )


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """As urllib3 would make it of the official client's settings."""
    context = ssl.create_default_context(cafile=settings.get("ca_certs"), cadata=settings.get("ca_cert_data"))
    if settings.get("cert_file"):
        context.load_cert_chain(settings["cert_file"], settings.get("key_file"))
    if settings.get("assert_hostname") is False or settings["cert_reqs"] == ssl.CERT_NONE:
        context.check_hostname = False
    context.verify_mode = settings["cert_reqs"]
    return context
