"""Who comes in at a listening socket: so many at once, over TLS, and whoever fails at that is counted and told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from aliquot_scheduler.certificates.issuing import DAY, Pair
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.web.doorway import Doorway
from aliquot_scheduler.web.handshakes import TELL_EVERY, FailedHandshakes, Wrong, what_was_wrong
from aliquot_scheduler.web.idle import IdleConnections
from aliquot_scheduler.web.tls import Tls
from support.centre_http import SCHEDULER, Authority
from support.clocks import VirtualClock

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_LOGGER = "aliquot_scheduler.web.handshakes"


class Inside(asyncio.Protocol):
    """Gives back what it gets; `wait` makes it somebody who is being answered."""

    def __init__(self, idle: IdleConnections) -> None:
        self._idle = idle
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is ours."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Say it back."""
        assert self._transport is not None
        if data == b"wait":
            self._idle.asking(self._transport)
        self._transport.write(data)


class House:
    """A doorway on loopback, and those who knock at it."""

    def __init__(self, authority: Authority, *, handshakes: int, strangers: int, over_tls: bool = True) -> None:
        self.authority, self.clock, self.registry = authority, VirtualClock(), CollectorRegistry()
        idle = IdleConnections(clock=self.clock)
        tls = Tls(files=authority.server_files(), clock=self.clock, look_every=3600.0)
        self.doorway = Doorway(
            inside=lambda: Inside(idle),
            idle=idle,
            failed=FailedHandshakes(registry=self.registry, clock=self.clock),
            tls=tls.listening if over_tls else None,
            handshakes=handshakes,
            strangers=strangers,
        )
        self.port = 0

    async def comes(self, client: Pair | None = None) -> Stream:
        """Somebody who is through TLS and was answered."""
        stream = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.authority.caller(client), server_hostname=CENTRE
        )
        assert await said(stream, b"here") == b"here"
        return stream

    async def fails(self, context: ssl.SSLContext) -> None:
        """Somebody who does not get through, whichever side says so first."""
        stream: Stream | None = None
        with contextlib.suppress(OSError):
            stream = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=CENTRE)
            assert await said(stream, b"here") == b""
        if stream:
            closed(stream)

    def failed(self, wrong: Wrong) -> float:
        """How many handshakes did so."""
        return self.registry.get_sample_value("aliquot_centre_tls_failures_total", {"wrong": wrong}) or 0.0


@asynccontextmanager
async def house(
    authority: Authority, *, handshakes: int = 9, strangers: int = 9, over_tls: bool = True
) -> AsyncIterator[House]:
    """Open until the end of the block."""
    one = House(authority, handshakes=handshakes, strangers=strangers, over_tls=over_tls)
    server = await asyncio.get_running_loop().create_server(one.doorway, "127.0.0.1", 0)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()
        await one.doorway.leave()


async def said(stream: Stream, what: bytes) -> bytes:
    """What comes back; nothing from whoever has hung up."""
    reader, writer = stream
    try:
        writer.write(what)
        return await reader.read(100)
    except OSError:  # also those of TLS
        return b""


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds; the test's own limit of time ends it otherwise."""
    while not holds():  # noqa: ASYNC110 - a counter sets no event
        await asyncio.sleep(0.001)


def closed(*streams: Stream) -> None:
    """Leave."""
    for _, writer in streams:
        writer.transport.abort()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom everybody trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_whoever_came_first_and_asks_nothing_goes_for_the_next_one(authority: Authority) -> None:
    """One for one, and the others stay."""
    async with house(authority, strangers=2) as one:
        first, second, third = await one.comes(), await one.comes(), await one.comes()
        assert await said(first, b"still") == b""
        assert await said(second, b"still") == b"still"
        assert await said(third, b"still") == b"still"
        closed(first, second, third)


async def test_nobody_who_waits_for_an_answer_goes_for_somebody_new(authority: Authority) -> None:
    """The new one is not let in, until somebody has left."""
    async with house(authority, strangers=1) as one:
        waiting = await one.comes()
        assert await said(waiting, b"wait") == b"wait"
        await one.fails(authority.caller())
        assert await said(waiting, b"still") == b"still"
        closed(waiting)
        await until(lambda: one.doorway.strangers == 0)
        closed(await one.comes())


async def test_kube_scheduler_comes_in_however_many_strangers_there_are(authority: Authority) -> None:
    """And does not count as one of them."""
    async with house(authority, strangers=1) as one:
        stranger = await one.comes()
        assert await said(stranger, b"wait") == b"wait"
        known = [await one.comes(authority.signs(SCHEDULER)) for _ in range(3)]
        assert [await said(each, b"still") for each in (stranger, *known)] == [b"still"] * 4
        closed(stranger, *known)


async def test_the_oldest_handshake_goes_for_the_next_one(authority: Authority) -> None:
    """Whoever says nothing can't keep others out."""
    async with house(authority, handshakes=1) as one:
        silent = await asyncio.open_connection("127.0.0.1", one.port)
        came = await one.comes()
        assert await silent[0].read() == b""
        assert await said(came, b"still") == b"still"
        closed(silent, came)


async def test_connections_without_tls_are_counted_too(authority: Authority) -> None:
    """Probes and Prometheus come so."""
    async with house(authority, strangers=1, over_tls=False) as one:
        first = await asyncio.open_connection("127.0.0.1", one.port)
        assert await said(first, b"here") == b"here"
        second = await asyncio.open_connection("127.0.0.1", one.port)
        assert await said(second, b"here") == b"here"
        assert await said(first, b"still") == b""
        closed(first, second)


async def test_what_comes_with_the_end_of_a_handshake_is_heard(authority: Authority) -> None:
    """In one packet with it, as some clients send."""

    def at_once(port: int) -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = authority.caller().wrap_bio(incoming, outgoing, server_hostname=CENTRE)
        with socket.create_connection(("127.0.0.1", port), timeout=50) as plain:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(65536))
            tls.write(b"early")
            plain.sendall(outgoing.read())
            while True:
                # What comes first may be tickets alone.
                incoming.write(plain.recv(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    return tls.read(100)

    async with house(authority) as one:
        assert await asyncio.to_thread(at_once, one.port) == b"early"


async def test_a_caller_with_an_old_certificate_is_counted_and_named(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """kube-scheduler itself, perhaps; the log has it once in a while, however often it tries."""
    old = authority.caller(authority.signs(SCHEDULER, since=10 * DAY))
    async with house(authority) as one:
        with caplog.at_level(logging.WARNING, logger=_LOGGER):
            for failed in (1, 2):
                await one.fails(old)
                await until(lambda failed=failed: one.failed(Wrong.THEIR_CERTIFICATE) == failed)  # type: ignore[misc]
            assert len(caplog.records) == 1
            assert "certificate has expired" in caplog.text
            await one.clock.advance(TELL_EVERY)
            await one.fails(old)
            await until(lambda: one.failed(Wrong.THEIR_CERTIFICATE) == 3)
        assert len(caplog.records) == 2
        assert caplog.records[0].peer[0] == "127.0.0.1"  # type: ignore[attr-defined]  # an extra
        assert one.failed(Wrong.OUR_CERTIFICATE) == one.failed(Wrong.NO_TLS) == 0.0


async def test_a_caller_who_does_not_trust_us_is_counted_apart(authority: Authority, tmp_path: Path) -> None:
    """Then it is the trust of whoever calls that has to be renewed."""
    distrusting = Authority(tmp_path, name="another").caller()

    def calls(port: int) -> None:
        # asyncio's client would hang up without a word.
        with socket.create_connection(("127.0.0.1", port), timeout=50) as plain, pytest.raises(ssl.SSLError):
            distrusting.wrap_socket(plain, server_hostname=CENTRE)

    async with house(authority) as one:
        await asyncio.to_thread(calls, one.port)
        await until(lambda: one.failed(Wrong.OUR_CERTIFICATE) == 1)


async def test_whatever_is_no_tls_is_counted_and_wakes_nobody(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Probes of a port connect and hang up."""
    async with house(authority) as one:
        with caplog.at_level(logging.INFO):
            plain = await asyncio.open_connection("127.0.0.1", one.port)
            plain[1].write(b"GET / HTTP/1.0\r\n\r\n")
            await until(lambda: one.failed(Wrong.NO_TLS) == 1)
            hung_up = await asyncio.open_connection("127.0.0.1", one.port)
            hung_up[1].close()
            await until(lambda: one.failed(Wrong.NO_TLS) == 2)
        assert caplog.records == []
        closed(plain)


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", Wrong.OUR_CERTIFICATE),
        ("SSLV3_ALERT_BAD_CERTIFICATE", Wrong.OUR_CERTIFICATE),
        ("TLSV1_ALERT_UNKNOWN_CA", Wrong.OUR_CERTIFICATE),
        ("TLSV1_ALERT_PROTOCOL_VERSION", Wrong.NO_TLS),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", Wrong.NO_TLS),
        (None, Wrong.NO_TLS),
    ],
)
def test_what_an_alert_says_of_us(reason: str | None, wrong: Wrong) -> None:
    """Only what is about certificates is about ours."""
    error = ssl.SSLError(1, "x")
    error.reason = reason  # type: ignore[assignment]  # None where OpenSSL says nothing
    assert what_was_wrong(error) is wrong
