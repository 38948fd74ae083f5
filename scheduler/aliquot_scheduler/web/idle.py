"""Connections on which nothing is asked: closed after a while, or whoever can reach the port could hold them for ever.

aiohttp waits for a request's head as long as it takes, and for the next one an hour; nobody need show a certificate to
be waited for, since the API server has none. Go's clients, which is what calls us, close theirs after 90 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from aliquot_core.clock import Clock

FIRST = 10.0
# Longer than callers keep a connection themselves: closed by us, it might be just when they use it again.
NEXT = 120.0
LOOK = 5.0


class IdleConnections:
    """Who is connected, and since when nothing was asked there."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._asking: set[asyncio.Transport] = set()
        # Until when something must have been asked, of those on which nothing is just now.
        self._until: dict[asyncio.Transport, float] = {}
        # Whether each answer is the last on its connection, and says so: closed without a word, it might be just when
        # the caller uses it again, and Go's clients send no POST twice.
        self.last_answers = False

    def begun(self, transport: asyncio.Transport) -> None:
        """A request has begun to come: the rest of it follows soon, or never."""
        rest_by = self._clock.monotonic() + FIRST
        self._until[transport] = min(self._until.get(transport, rest_by), rest_by)

    def asking(self, transport: asyncio.Transport) -> None:
        """A request is there, and its answer takes as long as it takes."""
        self._asking.add(transport)

    def answered(self, transport: asyncio.Transport) -> None:
        """It was answered."""
        self._asking.discard(transport)
        self._until[transport] = self._clock.monotonic() + NEXT

    def is_asking(self, transport: asyncio.Transport) -> bool:
        """Whether an answer is waited for there."""
        return transport in self._asking

    def middleware(self) -> Middleware:
        """What notes each request."""

        @web.middleware
        async def noting(request: web.Request, handler: Handler) -> web.StreamResponse:
            if (transport := request.transport) is None:
                return await handler(request)
            self.asking(transport)
            try:
                answer = await handler(request)
            except web.HTTPException as refusal:
                self._part(refusal)
                raise
            else:
                self._part(answer)
                return answer
            finally:
                self.answered(transport)

        return noting

    def _part(self, answer: web.StreamResponse) -> None:
        if self.last_answers:
            answer.force_close()

    async def run(self, connected: Callable[[], Iterable[asyncio.Transport]]) -> None:
        """Close those on which nothing was asked for too long, until cancelled."""
        while True:
            await self._clock.sleep(LOOK)
            self._close(connected())

    def _close(self, connected: Iterable[asyncio.Transport]) -> None:
        now = self._clock.monotonic()
        self._until = {one: self._until.get(one, now + FIRST) for one in connected}
        for transport, until in self._until.items():
            if until <= now and transport not in self._asking:
                transport.abort()
