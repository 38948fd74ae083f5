"""A follower's part of the extender: pass the call on to the leader as it came, and its answer back.

What must always hold:
 1. A call is sent once. It is sent again, once, only if no connection to the leader came about: a bind whose answer is
    lost may have happened.
 2. A call that was passed on is not passed on again, so replicas that disagree about who leads don't play ball with it.
 3. All of it ends within kube-scheduler's own patience.
"""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
from collections.abc import Callable

import aiohttp
import msgspec

from aliquot_core.clock import Clock
from aliquot_scheduler.extender.verbs import LeaderUnheardError
from aliquot_scheduler.web.heads import HOP

log = logging.getLogger(__name__)

# kube-scheduler gives up after 5 s by default.
PATIENCE = 4.0
# A leader whose machine is gone answers nothing at all; most of the patience is kept for whoever follows it.
CONNECT = 1.0
# A leader that was told to end is followed by another within half a second.
AGAIN_AFTER = 0.5
_LARGE = 1024 * 1024


class NotSentError(LeaderUnheardError):
    """And no leader can have heard of it."""


class LeadersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader answered, as it came."""

    status: int
    body: bytes
    content_type: str


class Forwarder:
    """Asks the leader; `close` ends its connections."""

    def __init__(
        self,
        *,
        identity: str,
        leads: Callable[[], bool],
        leader_address: Callable[[], str | None],
        clock: Clock,
        tls: Callable[[], ssl.SSLContext],
        server_name: str,
    ) -> None:
        """`leader_address` is a URL, `tls` what connections are made with now.

        `server_name` is what each replica's certificate says.
        """
        self._identity = identity
        self._leads = leads
        self._leader_address = leader_address
        self._clock = clock
        self._tls = tls
        self._server_name = server_name
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, path: str, body: bytes) -> LeadersAnswer | None:
        """The leader's answer; None where we have become the leader ourselves, and must answer."""
        try:
            async with asyncio.timeout(PATIENCE):
                try:
                    return await self._send(path, body)
                except NotSentError as error:
                    log.warning("a call is passed on once more: %s", error)
                    await self._clock.sleep(AGAIN_AFTER)
                    return None if self._leads() else await self._send(path, body)
        except TimeoutError:
            raise LeaderUnheardError(f"the leader did not answer within {PATIENCE:g} s", where=path) from None

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(self, path: str, body: bytes) -> LeadersAnswer:
        address = self._leader_address()
        if not address:
            raise NotSentError("no replica of the centre leads just now", where=path)
        if not address.startswith("https://"):
            raise LeaderUnheardError(
                f"the leader's address {address!r} has no https:// before it",
                where=path,
                remedy="correct its setting scheduler.address",
            )
        try:
            async with self._open_session().post(
                f"{address.rstrip('/')}{path}",
                # aiohttp would hold the loop while it sends a large one whole.
                data=io.BytesIO(body) if len(body) > _LARGE else body,
                headers={HOP: self._identity, "Content-Type": "application/json"},
                ssl=self._tls(),
                server_hostname=self._server_name,
                allow_redirects=False,
            ) as answer:
                return LeadersAnswer(status=answer.status, body=await answer.read(), content_type=answer.content_type)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NotSentError(f"the leader at {address} can't be reached: {error}", where=path) from error
        except aiohttp.ClientError as error:
            what = f"the leader at {address} did not answer: {type(error).__name__} {error}"
            raise LeaderUnheardError(what, where=path) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT)
            # The body goes out as it came in, and the answer comes back so.
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self._session
