"""Certificates that change while the centre serves: whole or not at all, and nobody is cut off."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from prometheus_client import CollectorRegistry

from aliquot_scheduler.certificates.issuing import DAY, Pair, Use, read_facts
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.web.peers import why_stranger
from aliquot_scheduler.web.tls import Tls, TlsError, TlsFiles
from support.centre_http import SCHEDULER, Authority, Caller, Replica, args, caller, replica, write, write_pair
from support.clocks import VirtualClock

PEM = serialization.Encoding.PEM


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whom everybody trusts."""
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    """What the centre serves with."""
    return authority.server_files()


@pytest.fixture
async def centre(files: TlsFiles) -> AsyncIterator[Replica]:
    """A replica that leads."""
    async with replica(files) as one:
        yield one


def renewed(authority: Authority) -> Pair:
    """Another certificate for the centre."""
    return authority.signs(CENTRE, hosts=[CENTRE, "127.0.0.1"], uses=[Use.SERVER, Use.CLIENT])


def number_of(certificate: bytes) -> int:
    """A certificate's serial number, from PEM."""
    return x509.load_pem_x509_certificate(certificate).serial_number


def connected(centre: Replica, context: ssl.SSLContext, **options: object) -> ssl.SSLSocket:
    """A handshake that is done; to be called in a thread."""
    plain = socket.create_connection(("127.0.0.1", centre.server.port), timeout=60)
    return context.wrap_socket(plain, **{"server_hostname": CENTRE, **options})  # type: ignore[arg-type]  # a test's


async def served(centre: Replica, authority: Authority, **options: object) -> int:
    """The serial number of the certificate that a new connection gets."""

    def look() -> int:
        with connected(centre, authority.caller(), **options) as one:
            got = one.getpeercert(binary_form=True)
            assert got is not None
            return x509.load_der_x509_certificate(got).serial_number

    return await asyncio.to_thread(look)


async def asks(centre: Replica, context: ssl.SSLContext) -> int:
    """The status of a filter call on a new connection; 0 where there is none."""
    async with caller(context) as one:
        try:
            return (await one.post(centre.url("/extender/filter"), args("n1")))[0]
        except aiohttp.ClientError:
            return 0


# --- a new certificate -----------------------------------------------------------------------------------------------
async def test_new_connections_get_the_new_certificate_and_old_ones_live_on(
    centre: Replica, authority: Authority, files: TlsFiles
) -> None:
    """Whoever is connected sees nothing of it."""
    async with caller(authority.caller(authority.signs(SCHEDULER))) as scheduler:
        assert (await scheduler.post(centre.url("/extender/filter"), args("n1")))[0] == 200
        before, pair = await served(centre, authority), renewed(authority)
        write_pair(files, pair)
        assert centre.tls.look() is True
        assert await served(centre, authority) == number_of(pair.certificate) != before
        authority.path.write_bytes(b"")  # a new connection of this caller would be none
        assert (await scheduler.post(centre.url("/extender/filter"), args("n1")))[0] == 200


async def test_nobody_is_cut_off_while_certificates_change_under_load(
    centre: Replica, authority: Authority, files: TlsFiles
) -> None:
    """A new connection for each call, and a new certificate or half of one every few calls."""
    done = 0

    async def calls(one: Caller) -> None:
        nonlocal done
        for _ in range(25):
            assert (await one.post(centre.url("/extender/filter"), args("n1")))[0] == 200
            done += 1
            if done % 5 == 0:
                pair = renewed(authority)
                write(files.certificate, pair.certificate)
                centre.tls.look()
            if done % 10 == 0:
                write(files.key, pair.key)
                assert centre.tls.look() is True

    async with caller(authority.caller(authority.signs(SCHEDULER)), keep=False) as one:
        await asyncio.gather(*(calls(one) for _ in range(6)))
    assert (done, len(centre.desk.asked)) == (150, 150)


def spoilt(name: str) -> Callable[[TlsFiles, Authority], None]:
    """One way in which files can't be used."""

    def locked(files: TlsFiles, authority: Authority) -> None:
        pair = renewed(authority)
        key = serialization.load_pem_private_key(pair.key, password=None)
        form = serialization.PrivateFormat.PKCS8
        lock = serialization.BestAvailableEncryption(b"secret")
        write_pair(files, Pair(certificate=pair.certificate, key=key.private_bytes(PEM, form, lock)))

    return {
        "another's key": lambda files, authority: write(files.key, renewed(authority).key),
        "another's certificate": lambda files, authority: write(files.certificate, renewed(authority).certificate),
        "a locked key": locked,
        "an empty key": lambda files, _: write(files.key, b""),
        "no certificate in it": lambda files, _: write(files.certificate, b"none"),
        "no authority in it": lambda files, _: write(files.authority, b"none"),
        "half a certificate": lambda files, _: write(files.certificate, Path(files.certificate).read_bytes()[:300]),
        "no key": lambda files, _: Path(files.key).unlink(),
    }[name]


SPOILT = [
    "another's key",
    "another's certificate",
    "a locked key",
    "an empty key",
    "no certificate in it",
    "no authority in it",
    "half a certificate",
    "no key",
]


@pytest.mark.parametrize("how", SPOILT)
async def test_files_that_can_t_be_used_change_nothing(
    centre: Replica, authority: Authority, files: TlsFiles, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """The old certificate goes on, the log says why, once; and once they are whole again they are taken."""
    before = await served(centre, authority)
    spoilt(how)(files, authority)
    with caplog.at_level(logging.ERROR):
        assert [centre.tls.look() for _ in range(3)] == [False] * 3
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the certificate in use stays"]
    assert await served(centre, authority) == before
    assert await asks(centre, authority.caller(authority.signs(SCHEDULER))) == 200
    pair = renewed(authority)
    write_pair(files, pair)
    write(files.authority, authority.pair.certificate)
    assert centre.tls.look() is True
    assert await served(centre, authority) == number_of(pair.certificate)


@pytest.mark.parametrize("how", SPOILT)
def test_a_centre_does_not_begin_with_them(authority: Authority, files: TlsFiles, how: str) -> None:
    """It says which file, and what to do."""
    spoilt(how)(files, authority)
    with pytest.raises(TlsError, match="mount the Secret") as caught:
        Tls(files=files, clock=VirtualClock(), look_every=1.0)
    assert caught.value.where == (files.key if how == "no key" else files.certificate)


def test_prometheus_is_told_when_the_certificate_in_use_ends(authority: Authority, files: TlsFiles) -> None:
    """Of the one in use, not of what lies in the folder and can't be used."""
    registry = CollectorRegistry()
    tls = Tls(files=files, clock=VirtualClock(), look_every=1.0)
    tls.observe(registry)

    def told() -> float | None:
        return registry.get_sample_value("aliquot_centre_certificate_expiry_timestamp_seconds")

    first = told()
    assert first == read_facts(Path(files.certificate).read_bytes()).ends
    older = authority.signs(CENTRE, hosts=[CENTRE], uses=[Use.SERVER], since=DAY / 2)
    write(files.certificate, older.certificate)
    tls.look()
    assert told() == first
    write(files.key, older.key)
    tls.look()
    assert told() == pytest.approx(first - DAY / 2, abs=60)


async def test_the_files_are_looked_at_again_and_again(authority: Authority, files: TlsFiles) -> None:
    """And whoever wants to know is told of a change, and of nothing else."""
    clock = VirtualClock()
    tls = Tls(files=files, clock=clock, look_every=10.0)
    told: list[float] = []
    tls.changed.append(lambda: told.append(clock.monotonic()))
    before = tls.client()
    running = asyncio.create_task(tls.run())
    await clock.advance(25.0)
    write_pair(files, renewed(authority))
    await clock.advance(30.0)
    assert told == [30.0]
    assert tls.client() is not before
    running.cancel()


# --- another authority -----------------------------------------------------------------------------------------------
async def test_an_authority_that_is_trusted_no_longer_lets_nobody_in(
    centre: Replica, authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    """First both are trusted, then only the new one."""
    new = Authority(tmp_path / "new")
    of_old, of_new = authority.caller(authority.signs(SCHEDULER)), authority.caller(new.signs(SCHEDULER))
    assert (await asks(centre, of_old), await asks(centre, of_new)) == (200, 0)
    write(files.authority, new.pair.certificate + authority.pair.certificate)
    centre.tls.look()
    assert (await asks(centre, of_old), await asks(centre, of_new)) == (200, 200)
    write(files.authority, new.pair.certificate)
    centre.tls.look()
    assert (await asks(centre, of_old), await asks(centre, of_new)) == (0, 200)


@pytest.mark.parametrize("server_hostname", [CENTRE, "127.0.0.1"])
async def test_a_client_that_names_an_address_gets_the_new_certificate_too(
    centre: Replica, authority: Authority, files: TlsFiles, server_hostname: str
) -> None:
    """The hand-over needs no server name in the hello."""
    pair = renewed(authority)
    write_pair(files, pair)
    centre.tls.look()
    assert await served(centre, authority, server_hostname=server_hostname) == number_of(pair.certificate)


async def test_no_session_is_resumed(centre: Replica, authority: Authority) -> None:
    """Or its client would not be looked at again."""

    def twice() -> bool | None:
        context = authority.caller(authority.signs(SCHEDULER))
        with connected(centre, context) as one:
            one.sendall(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one.recv(1000)
            session = one.session
        with connected(centre, context, session=session) as two:
            two.sendall(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
            assert two.recv(1000)
            return two.session_reused

    assert await asyncio.to_thread(twice) is False


async def test_nothing_older_than_tls_1_3_is_spoken(centre: Replica, authority: Authority) -> None:
    """1.2 would resume sessions."""

    def old() -> None:
        context = authority.caller()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connected(centre, context).close()

    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(old)


# --- whose certificate it is -----------------------------------------------------------------------------------------
def certificate(
    *names: str, others: tuple[tuple[str, str], ...] = (), ends: str = "Jan  1 00:00:10 1970 GMT"
) -> dict[str, object]:
    """As `ssl` tells of it."""
    return {
        "subject": ((("organizationName", "system:masters"),), *((("commonName", name),) for name in names)),
        "subjectAltName": others,
        "notAfter": ends,
    }


@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (None, "no client certificate"),
        ({}, "no client certificate"),
        (certificate("a"), ""),
        (certificate("x", "a"), ""),
        (certificate("x", others=(("DNS", "a"),)), ""),
        (certificate(others=(("URI", "a"),)), ""),
        (
            certificate(others=(("email", "a"), ("IP Address", "a"))),
            "the client certificate is of nobody, which is not let in",
        ),
        (certificate("A", others=(("DNS", "aa"),)), "the client certificate is of A, aa, which is not let in"),
        (certificate("system:masters"), "the client certificate is of system:masters, which is not let in"),
        (certificate("a", ends="Jan  1 00:00:05 1970 GMT"), "the client certificate is out of date"),
    ],
)
def test_whose_certificate_it_is(peer: dict[str, object] | None, why: str) -> None:
    """One of its names must be let in, and it must be of today."""
    assert why_stranger(peer, allowed={"a"}, now=5.0) == why


async def test_a_connection_does_not_outlive_its_certificate(authority: Authority, files: TlsFiles) -> None:
    """kube-scheduler keeps its connections for ever."""
    certificate = authority.signs(SCHEDULER)
    # It is good to within a second of a day from before this instant.
    clock = VirtualClock(start=time.time())
    async with (
        replica(files, seeing=clock) as centre,
        caller(authority.caller(certificate)) as scheduler,
    ):
        assert (await scheduler.post(centre.url("/extender/filter"), args("n1")))[0] == 200
        await clock.advance(DAY)
        status, answer = await scheduler.post(centre.url("/extender/filter"), args("n1"))
        assert (status, answer) == (403, {"error": "the client certificate is out of date"})
        assert len(centre.desk.asked) == 1
