"""The real transport against a server that does whatever a test wants."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from aliquot_core.errors import ClusterError, DefectError
from aliquot_kube.clock import SystemClock
from aliquot_kube.conveyor import BELT_BYTES
from aliquot_kube.credentials import Credentials
from aliquot_kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    DisruptionBlockedError,
    ForbiddenError,
    GarbledError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerTroubleError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
)
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.questions import PieceTransport, Question, Timeouts
from aliquot_kube.swift import FRESH, SwiftTransport, swiftest
from aliquot_kube.transport import HttpTransport
from support.clocks import VirtualClock
from support.require import skip_or_fail
from support.scripted_http import Exchange, ScriptedServer

LIST = Question(method="GET", path="/api/v1/pods")
Connect = Callable[[ScriptedServer], PieceTransport]


def by_urllib3(credentials: Credentials) -> PieceTransport:
    """The way that does all."""
    return HttpTransport(credentials=credentials)


def by_loop(credentials: Credentials) -> PieceTransport:
    """The centre's way."""
    return swiftest(credentials=credentials, clock=SystemClock(), user_agent="aliquot")


WAYS: dict[str, Callable[[Credentials], PieceTransport]] = {"urllib3": by_urllib3, "swift": by_loop}


@pytest.fixture(params=[*WAYS, "plain"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Make transports to scripted servers, closed at the end: of all ways, which keep one contract."""
    made: list[PieceTransport] = []

    def to(server: ScriptedServer) -> PieceTransport:
        if request.param == "plain":
            made.append(PlainTransport(PlainServer(url=server.url)))
        else:
            made.append(WAYS[request.param](Credentials(lambda: Configuration(host=server.url))))
        return made[-1]

    yield to
    for transport in made:
        await transport.close()


def failing(status: int, *, reason: str = "", message: str = "", **headers: str) -> Callable[[Exchange], None]:
    """Script a failure."""
    return lambda exchange: exchange.fail(status, reason=reason, message=message, **headers)


async def test_request_carries_method_query_body_and_content_type(connect: Connect) -> None:
    """What is asked arrives as it was asked, and the answer comes back as bytes with lower-case header names."""
    with ScriptedServer(lambda exchange: exchange.answer(201, b'{"a":1}', X_Thing="yes")) as server:
        answer = await connect(server).request(
            Question(
                method="PATCH",
                path="/api/v1/x",
                query={"a": "b c"},
                body=b"[]",
                content_type="application/merge-patch+json",
            )
        )
    seen = server.requests[0]
    assert (seen.method, seen.path, seen.query, seen.body) == ("PATCH", "/api/v1/x", {"a": "b c"}, b"[]")
    assert seen.headers["content-type"] == "application/merge-patch+json"
    assert (answer.status, answer.body, answer.headers["x-thing"]) == (201, b'{"a":1}', "yes")


async def test_connection_is_used_again(connect: Connect) -> None:
    """Requests one after another share a connection."""
    with ScriptedServer(lambda exchange: exchange.answer(200, b"{}")) as server:
        transport = connect(server)
        for _ in range(5):
            await transport.request(LIST)
        assert len(server._connections) == 1


async def test_connection_is_used_again_after_an_answer_in_chunks(connect: Connect) -> None:
    """Whatever stands at the end of chunks is read, and not taken for the next answer."""

    def in_chunks(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.chunk(b"[1,")
        exchange.chunk(b"2]")
        exchange.end_stream()

    with ScriptedServer(in_chunks) as server:
        transport = connect(server)
        assert [(await transport.request(LIST)).body for _ in range(3)] == [b"[1,2]"] * 3
        assert len(server._connections) == 1


@pytest.mark.parametrize(
    ("status", "reason", "kind", "fault"),
    [
        (401, "Unauthorized", UnauthorizedError, ClusterError),
        (403, "Forbidden", ForbiddenError, ClusterError),
        (404, "NotFound", NotFoundError, ClusterError),
        (409, "Conflict", ConflictError, ClusterError),
        (409, "AlreadyExists", AlreadyExistsError, ClusterError),
        (410, "Expired", GoneError, ClusterError),
        (422, "Invalid", InvalidError, DefectError),
        (429, "TooManyRequests", ThrottledError, ClusterError),
        (500, "InternalError", ServerTroubleError, ClusterError),
        (503, "", ServerTroubleError, ClusterError),
        (302, "", GarbledError, ClusterError),
    ],
)
async def test_each_failure_has_its_name_and_fault(
    connect: Connect, status: int, reason: str, kind: type[ApiError], fault: type
) -> None:
    """A status that is no 2xx raises its own error with the server's words and the place."""
    with (
        ScriptedServer(failing(status, reason=reason, message="words of the server")) as server,
        pytest.raises(kind) as caught,
    ):
        await connect(server).request(LIST)
    assert type(caught.value) is kind
    assert isinstance(caught.value, fault)
    assert caught.value.status == status
    assert "words of the server" in str(caught.value)
    assert "GET /api/v1/pods" in str(caught.value)


async def test_retry_after_is_read_from_header_and_body(connect: Connect) -> None:
    """Both ways in which the server asks for patience are understood."""
    body = {"code": 429, "details": {"retryAfterSeconds": 3, "causes": [{"reason": "DisruptionBudget"}]}}
    with ScriptedServer(
        failing(429, retry_after="7"),
        lambda exchange: exchange.answer_json(429, body),
        failing(503, retry_after="soon"),
    ) as server:
        transport = connect(server)
        with pytest.raises(ThrottledError) as by_header:
            await transport.request(LIST)
        with pytest.raises(DisruptionBlockedError) as by_body:
            await transport.request(LIST)
        with pytest.raises(ServerTroubleError) as neither:
            await transport.request(LIST)
    assert (by_header.value.retry_after, by_body.value.retry_after, neither.value.retry_after) == (7.0, 3.0, None)


async def test_failure_without_a_status_keeps_what_was_said(connect: Connect) -> None:
    """A proxy's page in place of a Status is quoted."""
    with (
        ScriptedServer(lambda exchange: exchange.answer(502, b"<h1>bad gateway</h1>")) as server,
        pytest.raises(ServerTroubleError, match="bad gateway"),
    ):
        await connect(server).request(LIST)


def _half_body(exchange: Exchange) -> None:
    exchange.head(200, content_length="100")
    exchange.send(b"{")
    exchange.cut()


def _half_chunk(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.send(b"20\r\nabc")
    exchange.keep_alive = False


def _no_chunk_size(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.send(b"zz\r\nabc\r\n")
    exchange.wait_for_client_to_leave()


def _not_http(exchange: Exchange) -> None:
    exchange.send(b"SSH-2.0-OpenSSH\r\n\r\n")
    exchange.keep_alive = False


@pytest.mark.parametrize("script", [_half_body, _half_chunk, _no_chunk_size, _not_http])
async def test_broken_answers_are_named_unreachable(connect: Connect, script: Callable[[Exchange], None]) -> None:
    """An answer that ends too early or is no HTTP raises at once; the next request works."""
    with ScriptedServer(script, lambda exchange: exchange.answer(200, b"{}")) as server:
        transport = connect(server)
        with pytest.raises(UnreachableError):
            await transport.request(LIST)
        assert (await transport.request(LIST)).status == 200


async def test_nobody_there_is_named_unreachable(connect: Connect) -> None:
    """A refused connection says so in words of people, with what to look at."""
    with ScriptedServer(lambda exchange: exchange.answer(200)) as server:
        transport = connect(server)
    with pytest.raises(UnreachableError) as refused:
        await transport.request(LIST)
    assert str(refused.value) == f"{LIST.where}: no connection: Connection refused; is the API server up and reachable?"


@pytest.mark.parametrize("way", WAYS)
async def test_a_name_that_nobody_knows_is_said_in_words(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of the resolver are not the system's."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    transport = WAYS[way](Credentials(lambda: Configuration(host="http://nobody.invalid:1")))
    with pytest.raises(UnreachableError, match="no connection: Name or service not known;"):
        await transport.request(LIST)
    await transport.close()


def _silence(exchange: Exchange) -> None:
    exchange.wait_for_client_to_leave()


def _silent_body(exchange: Exchange) -> None:
    exchange.head(200, content_length="100")
    exchange.wait_for_client_to_leave()


@pytest.mark.parametrize("script", [_silence, _silent_body])
@pytest.mark.parametrize("timeouts", [Timeouts(silence=0.05), Timeouts(total=0.05)])
async def test_silence_ends_by_the_time_limits(
    connect: Connect, script: Callable[[Exchange], None], timeouts: Timeouts
) -> None:
    """Before and amid an answer silence is bounded, and the connection is closed."""
    with ScriptedServer(script) as server:
        with pytest.raises(UnreachableError):
            await connect(server).request(Question(method="GET", path="/", timeouts=timeouts))
        server.wait_for_ended_connections(1)


async def test_bytes_that_drip_are_ended_by_the_total_limit(connect: Connect) -> None:
    """A server that always sends one more byte just in time is not listened to for ever."""
    stop = threading.Event()

    def drip(exchange: Exchange) -> None:
        exchange.head(200, content_length="1000000")
        while not stop.is_set():
            exchange.send(b" ")
            stop.wait(0.01)

    with ScriptedServer(drip) as server:
        with pytest.raises(UnreachableError, match=r"within 0\.2 s"):
            await connect(server).request(Question(method="GET", path="/", timeouts=Timeouts(silence=5, total=0.2)))
        server.wait_for_ended_connections(1)
        stop.set()


async def test_cancelled_request_frees_its_thread_at_once(connect: Connect) -> None:
    """Requests that nobody waits for any more do not hold the few threads."""
    with ScriptedServer(_silence, _silence, _silence, _silence, lambda exchange: exchange.answer(200)) as server:
        transport = connect(server)
        stuck = [asyncio.create_task(transport.request(LIST)) for _ in range(4)]
        await asyncio.to_thread(server.wait_for_requests, 4)
        for task in stuck:
            task.cancel()
        assert (await transport.request(LIST)).status == 200
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*stuck, return_exceptions=True))


async def test_stream_gives_whole_lines_whatever_the_chunks(connect: Connect) -> None:
    """Lines are cut right when chunks are not: several to a chunk, several chunks to a line, none at the end."""

    def chunks(exchange: Exchange) -> None:
        exchange.begin_stream()
        for chunk in [b'{"a":', b'1}\n{"b":2}\n\n{"c"', b":3}\r\n", b'{"cut":']:
            exchange.chunk(chunk)
        exchange.end_stream()

    with ScriptedServer(chunks) as server:
        async with connect(server).stream(LIST) as lines:
            got = [json.loads(line) async for line in lines]
    assert got == [{"a": 1}, {"b": 2}, {"c": 3}]


async def test_stream_that_is_refused_raises_on_entering(connect: Connect) -> None:
    """A watch that is answered by a Status is that error."""
    with ScriptedServer(failing(410, reason="Expired")) as server, pytest.raises(GoneError):
        async with connect(server).stream(LIST):
            pytest.fail("entered")


async def test_stream_without_an_answer_is_given_up(connect: Connect) -> None:
    """A watch whose headers never come ends by the total limit."""
    with ScriptedServer(_silence) as server:
        with pytest.raises(UnreachableError):
            async with connect(server).stream(Question(method="GET", path="/", timeouts=Timeouts(total=0.05))):
                pytest.fail("entered")
        server.wait_for_ended_connections(1)


async def test_stream_cut_in_the_middle_gives_what_came_and_then_raises(connect: Connect) -> None:
    """Whole lines before a cut are delivered, the half line is not, and the cut is no orderly end."""

    def script(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.line({"n": 1})
        exchange.chunk(b'{"n":')
        exchange.wait_for_test()
        exchange.cut()

    with ScriptedServer(script) as server:
        async with connect(server).stream(LIST) as lines:
            assert await anext(lines) == b'{"n": 1}'
            server.release()
            with pytest.raises(UnreachableError):
                await anext(lines)


async def test_silent_stream_is_given_up_after_its_own_limit(connect: Connect) -> None:
    """A stream may be silent longer than a request's answer, but not for ever."""

    def script(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.line({"n": 1})
        exchange.wait_for_client_to_leave()

    with ScriptedServer(script) as server:
        question = Question(method="GET", path="/", timeouts=Timeouts(silence=0.05))
        with pytest.raises(UnreachableError):
            async with connect(server).stream(question) as lines:
                assert [line async for line in lines]
        server.wait_for_ended_connections(1)


def _endless_silence(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.line({"n": 1})
    exchange.wait_for_client_to_leave()


async def test_leaving_a_stream_ends_it_at_once(connect: Connect) -> None:
    """A watch that is left or cancelled amid silence lets go of its thread and its connection."""
    with ScriptedServer(_endless_silence) as server:
        transport = connect(server)
        async with transport.stream(LIST) as lines:
            assert await anext(lines) == b'{"n": 1}'
        server.wait_for_ended_connections(1)

        async def watch() -> None:
            async with transport.stream(LIST) as lines:
                async for _ in lines:
                    reading.set()

        reading = asyncio.Event()
        task = asyncio.create_task(watch())
        await reading.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.wait_for_ended_connections(2)


async def test_close_cuts_what_is_under_way(connect: Connect) -> None:
    """Closing the transport ends requests and streams amid silence, and all its threads."""
    with ScriptedServer(_endless_silence, _silence) as server:
        transport = connect(server)
        opened = asyncio.Event()

        async def watch() -> None:
            async with transport.stream(LIST) as lines:
                async for _ in lines:
                    opened.set()

        watching = asyncio.create_task(watch())
        await opened.wait()
        asking = asyncio.create_task(transport.request(LIST))
        await asyncio.to_thread(server.wait_for_requests, 2)
        await transport.close()
        ends = await asyncio.gather(watching, asking, return_exceptions=True)
        assert [type(end) for end in ends] == [UnreachableError, UnreachableError]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("kube-")]


async def test_slow_consumer_holds_the_server_back(connect: Connect) -> None:
    """While nobody reads, the server gets stuck sending: what lies between is bounded."""
    line = b"x" * 65_535 + b"\n"
    sent = 0
    stuck = threading.Event()

    def flood(exchange: Exchange) -> None:
        nonlocal sent
        exchange.begin_stream()
        exchange.connection.settimeout(0.5)
        try:
            while sent < 200 * 1024 * 1024:
                exchange.chunk(line)
                sent += len(line)
        except TimeoutError:
            stuck.set()
        exchange.keep_alive = False

    with ScriptedServer(flood) as server:
        async with connect(server).stream(LIST) as lines:
            await anext(lines)
            assert await asyncio.to_thread(stuck.wait, 60)
    # The belt holds 1 MiB; the rest is in the kernel's socket buffers.
    assert sent < 24 * 1024 * 1024


async def test_endless_line_is_given_up(connect: Connect) -> None:
    """A line longer than any object is garbage, not a reason to fill the memory."""

    def flood(exchange: Exchange) -> None:
        exchange.begin_stream()
        while True:
            exchange.chunk(b"x" * 65_536)

    with ScriptedServer(flood) as server:
        with pytest.raises(GarbledError, match="longer than"):
            async with connect(server).stream(LIST) as lines:
                assert [line async for line in lines]
        # In a thread: while the kernel still holds bytes for us, only closing ends it, in the loop's next round.
        await asyncio.to_thread(server.wait_for_ended_connections, 1)


async def test_loop_stays_free_while_a_stream_floods(connect: Connect) -> None:
    """Although the next line is always there already, others get their turn after at most what the belt holds."""
    line = b'{"n":"%b"}\n' % (b"1" * 90)
    chunk = line * 100

    def flood(exchange: Exchange) -> None:
        exchange.begin_stream()
        for _ in range(1_000):
            exchange.chunk(chunk)
        exchange.end_stream()

    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    taken: dict[int, int] = {}  # lines by the turn in which they came
    with ScriptedServer(flood) as server:
        async with connect(server).stream(LIST) as lines:
            counting = asyncio.create_task(count())
            async for _ in lines:
                taken[turns] = taken.get(turns, 0) + 1
            counting.cancel()
    assert sum(taken.values()) == 100_000
    assert max(taken.values()) * len(line) <= BELT_BYTES + len(chunk)


@pytest.mark.parametrize("way", WAYS)
async def test_unknown_again_after_fresh_credentials_asks_only_twice(way: str) -> None:
    """A 401 loads the credentials anew and asks once more; the second 401 is the answer."""
    tokens = iter(["old", "new", "newer"])
    with ScriptedServer(failing(401), lambda exchange: exchange.answer(200), failing(401)) as server:

        def load() -> Configuration:
            return Configuration(host=server.url, api_key={"BearerToken": f"Bearer {next(tokens)}\n"})

        transport = WAYS[way](Credentials(load))
        await transport.request(LIST)
        with pytest.raises(UnauthorizedError):
            await transport.request(LIST)
        await transport.close()
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer old", "Bearer new", "Bearer new", "Bearer newer"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for loopback, with its key in the same file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        skip_or_fail("node", "the openssl command is missing, which makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "loopback.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", path, "-out", path),
        ],
        check=True,
        capture_output=True,
    )
    return path


@pytest.mark.parametrize("way", WAYS)
async def test_stream_over_tls_ends_at_once_too(certificate: Path, way: str) -> None:
    """TLS changes nothing: lines arrive and a silent watch is left without waiting."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with ScriptedServer(_endless_silence, tls=context) as server:
        configuration = Configuration(host=server.url, ssl_ca_cert=str(certificate))
        transport = WAYS[way](Credentials(lambda: configuration))
        # The server says nothing more: whoever waited for it to end would wait for ever.
        async with asyncio.timeout(60):
            async with transport.stream(LIST) as lines:
                assert await anext(lines) == b'{"n": 1}'
            await transport.close()
        server.wait_for_ended_connections(1)


@pytest.mark.parametrize("way", WAYS)
async def test_wrong_certificate_is_refused_and_the_credentials_loaded_anew(certificate: Path, way: str) -> None:
    """A server that our CA did not sign is not spoken to; a rotated CA is picked up by the next request."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with ScriptedServer(lambda exchange: exchange.answer(200), tls=context) as server:
        authorities = iter([None, str(certificate)])
        transport = WAYS[way](Credentials(lambda: Configuration(host=server.url, ssl_ca_cert=next(authorities))))
        with pytest.raises(UnreachableError, match="certificate"):
            await transport.request(LIST)
        assert (await transport.request(LIST)).status == 200
        await transport.close()
    assert len(server.requests) == 1


async def test_a_token_that_was_renewed_is_sent_some_seconds_later_on_the_same_connection() -> None:
    """Who we are is looked up again when it is old, and no connection is thrown away for it."""
    clock, tokens = VirtualClock(), ["first"]

    def refresh(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {tokens[-1]}"

    with ScriptedServer(lambda exchange: exchange.answer(200)) as server:
        configuration = Configuration(host=server.url, api_key={"BearerToken": "Bearer first"})
        configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # their stub says None
        transport = SwiftTransport(credentials=Credentials(lambda: configuration), clock=clock)
        await transport.request(LIST)
        tokens.append("second")
        await transport.request(LIST)
        await clock.advance(FRESH)
        await transport.request(LIST)
        await transport.close()
        assert len(server._connections) == 1
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({}, SwiftTransport),
        ({"tls_server_name": "kubernetes"}, SwiftTransport),
        ({"assert_hostname": "other"}, HttpTransport),
        ({"proxy": "http://127.0.0.1:1"}, HttpTransport),
    ],
)
async def test_what_only_urllib3_can_goes_through_it(wanted: dict[str, str], kind: type) -> None:
    """Proxies, and another name in the certificate, are not tried on the loop."""
    configuration = Configuration(host="https://127.0.0.1:1")
    for name, value in wanted.items():
        setattr(configuration, name, value)
    transport = by_loop(Credentials(lambda: configuration))
    await transport.close()
    assert type(transport) is kind
