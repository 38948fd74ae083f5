"""Who comes in at a listening socket: how many at once, TLS, and what becomes of those with whom TLS fails.

Theory of operation. Whoever reaches the port may connect, since the API server has no certificate for webhooks; and a
connection takes memory before a word is said (0.3 MiB, most of it asyncio's buffer for TLS). So two kinds are counted:
those that are at TLS's handshake, and those inside whose caller showed no certificate. Where there are too many, the
one that came first of those on which nothing is asked just now has to go for the next one. Callers whose certificate
our authority signed are not counted inside: nobody without one takes their place. asyncio's own way to accept with TLS
tells nobody of a handshake that fails, so TLS is begun here.

What must always hold: what comes with the end of a handshake is the first that whoever is inside gets; nobody is let in
twice, and whoever was sent away is not let in.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.idle import FIRST, IdleConnections

# Whoever is sent away from a handshake may be a binding: 500 pods are let in at once, and each of them may be bound on
# a connection of its own. All of these and those below take 0.35 GiB, of the 1 that the centre has.
HANDSHAKES = 600
# Three API servers, each with as many changes at once as they take by default: 200, each on a connection of its own.
STRANGERS = 600
# For the other side's good-bye; asyncio would wait 30 s for it.
_FAREWELL = 5.0


class Doorway:
    """Makes a protocol for each connection that is accepted, and from `inside` whoever it is handed to."""

    def __init__(
        self,
        *,
        inside: Callable[[], asyncio.Protocol],
        idle: IdleConnections,
        failed: FailedHandshakes,
        tls: ssl.SSLContext | None,
        handshakes: int = HANDSHAKES,
        strangers: int = STRANGERS,
    ) -> None:
        """At most so many `handshakes` and `strangers` at once."""
        self._inside, self._idle, self._failed, self._tls = inside, idle, failed, tls
        self._most_handshakes, self._most_strangers = handshakes, strangers
        # By the connection below TLS, whoever came first before the others.
        self._handshakes: dict[asyncio.Transport, asyncio.Task[None]] = {}
        self._strangers: dict[asyncio.Transport, asyncio.Transport] = {}

    def __call__(self) -> asyncio.Protocol:
        """One more connection."""
        return _Knock(self._knocked)

    @property
    def strangers(self) -> int:
        """How many are inside without a certificate."""
        self._strangers = {plain: one for plain, one in self._strangers.items() if not plain.is_closing()}
        return len(self._strangers)

    async def leave(self) -> None:
        """Nobody is at a handshake any more."""
        tasks = [*self._handshakes.values()]
        for plain in [*self._handshakes]:
            self._send_away(plain)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _knocked(self, plain: asyncio.Transport) -> None:
        if self._tls is None:
            self._let_in(plain, plain, early=b"")
            return
        if len(self._handshakes) >= self._most_handshakes:
            self._send_away(next(iter(self._handshakes)))
        # What comes is TLS's; it is listened to as soon as there is one.
        plain.pause_reading()
        self._handshakes[plain] = asyncio.get_running_loop().create_task(self._shake_hands(plain, self._tls))

    def _send_away(self, plain: asyncio.Transport) -> None:
        self._handshakes.pop(plain).cancel()
        plain.abort()

    async def _shake_hands(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        between = _Between()
        try:
            transport = await asyncio.get_running_loop().start_tls(
                plain, between, tls, server_side=True, ssl_handshake_timeout=FIRST, ssl_shutdown_timeout=_FAREWELL
            )
        except OSError as error:  # also those of TLS
            self._failed.note(error, peer=plain.get_extra_info("peername"))
            return
        finally:
            self._handshakes.pop(plain, None)
        if transport is not None and not between.lost:
            self._let_in(plain, transport, early=between.early)

    def _let_in(self, plain: asyncio.Transport, transport: asyncio.Transport, *, early: bytes) -> None:
        if not transport.get_extra_info("peercert"):
            if not self._make_room():
                plain.abort()
                return
            self._strangers[plain] = transport
        protocol = self._inside()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if early:
            protocol.data_received(early)

    def _make_room(self) -> bool:
        """Whether there is room for one more without a certificate."""
        if self.strangers < self._most_strangers:
            return True
        resting = next((plain for plain, one in self._strangers.items() if not self._idle.is_asking(one)), None)
        if resting is None:
            return False
        del self._strangers[resting]
        resting.abort()
        return True


class _Knock(asyncio.Protocol):
    """A connection that was just accepted."""

    def __init__(self, knocked: Callable[[asyncio.Transport], None]) -> None:
        self._knocked = knocked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there; whoever takes it over listens from here on."""
        self._knocked(cast("asyncio.Transport", transport))


class _Between(asyncio.Protocol):
    """Keeps what comes with the end of a handshake, before anybody knows that it ended."""

    def __init__(self) -> None:
        self.early = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        """The first of it."""
        self.early += data

    def connection_lost(self, _exc: Exception | None) -> None:
        """Somebody left in the doorway."""
        self.lost = True
