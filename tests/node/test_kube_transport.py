"""Requests of the real transport against a server that does whatever a test wants."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
from kubernetes.client import Configuration

from aliquot_core.errors import ClusterError, DefectError
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
from aliquot_kube.questions import Question, Timeouts
from support.kube_ways import LIST, WAYS, Connect, failing, silence
from support.scripted_http import Exchange, ScriptedServer


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


def _silent_body(exchange: Exchange) -> None:
    exchange.head(200, content_length="100")
    exchange.wait_for_client_to_leave()


@pytest.mark.parametrize("script", [silence, _silent_body])
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
    with ScriptedServer(silence, silence, silence, silence, lambda exchange: exchange.answer(200)) as server:
        transport = connect(server)
        stuck = [asyncio.create_task(transport.request(LIST)) for _ in range(4)]
        await asyncio.to_thread(server.wait_for_requests, 4)
        for task in stuck:
            task.cancel()
        assert (await transport.request(LIST)).status == 200
        assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*stuck, return_exceptions=True))
