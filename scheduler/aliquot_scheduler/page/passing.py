"""A follower's part: whoever asks it for the page gets the leader's, as it comes, byte by byte."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from aliquot_core.errors import ClusterError

# Who passed a request on: it was judged there.
HOP = "Aliquot-Passed-By"
_CONNECT = 1.0
# Streams say something every 15 s.
_SILENCE = 45.0


class LeaderUnseenError(ClusterError):
    """No leader could be asked."""


class Passing:
    """Asks the leader; `close` ends its connections."""

    def __init__(
        self,
        *,
        identity: str,
        leader_address: Callable[[], str | None],
        tls: Callable[[], ssl.SSLContext],
        server_name: str,
    ) -> None:
        self._identity = identity
        self._leader_address = leader_address
        self._tls = tls
        self._server_name = server_name
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def asked(self, path: str, *, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """The leader's answer, whose body has not been read yet."""
        address = self._leader_address()
        if not address or not address.startswith("https://"):
            raise LeaderUnseenError("no replica of the centre leads just now, or it does not say where it is")
        try:
            async with self._open_session().get(
                f"{address.rstrip('/')}{path}",
                headers={**headers, HOP: self._identity},
                ssl=self._tls(),
                server_hostname=self._server_name,
                allow_redirects=False,
            ) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LeaderUnseenError(f"the leader at {address} did not answer: {type(error).__name__}") from error

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self._session
