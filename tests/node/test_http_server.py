"""The agent's few pages over real sockets: they are served, whatever else is sent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aliquot_agent.web import http_server
from aliquot_agent.web.http_server import LONGEST_REQUEST, MOST_AT_ONCE, Answer, Asked, HttpServer, Page, read, written
from aliquot_kube.clock import SystemClock
from aliquot_standalone.ports import any_port

GET = b"GET /here HTTP/1.1\r\nHost: x\r\n\r\n"


async def here() -> Answer:
    """A page."""
    return Answer(body=b"here\n")


async def broken() -> Answer:
    """A page that a defect spoils."""
    raise ValueError("a defect")


async def never() -> Answer:
    """A page that is never made."""
    await asyncio.Event().wait()
    raise AssertionError


async def large() -> Answer:
    """More than any socket buffer takes."""
    return Answer(body=b"x" * 16 * 1024 * 1024)


PAGES: Mapping[str, Page] = {"/here": here, "/broken": broken, "/never": never, "/large": large}


@contextlib.asynccontextmanager
async def serving(*, address: str = "127.0.0.1", pages: Mapping[str, Page] = PAGES) -> AsyncIterator[HttpServer]:
    """A server, ended as the agent ends it."""
    server = HttpServer(address=address, port=0, pages=pages, clock=SystemClock())
    task = asyncio.ensure_future(server.run())
    try:
        async with asyncio.timeout(60):
            await server.serving.wait()
        yield server
    finally:
        task.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(task, return_exceptions=True)


async def ask(server: HttpServer, request: bytes, *, address: str = "127.0.0.1", end: bool = False) -> bytes:
    """Send bytes and read until the server has hung up; a reset is an end too."""
    reader, writer = await asyncio.open_connection(address, server.ports[0])
    answer = b""
    try:
        writer.write(request)
        if end:
            writer.write_eof()
        async with asyncio.timeout(60):
            while chunk := await reader.read(65536):
                answer += chunk
    except ConnectionError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return answer


async def test_a_page_is_served_and_the_connection_closed() -> None:
    """With its length, so that a cut page is not taken for a whole one."""
    async with serving() as server:
        head, _, body = (await ask(server, GET)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5" in head
    assert b"Connection: close" in head
    assert body == b"here\n"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /here?x=1 HTTP/1.0", 200),
        (b"GET /elsewhere HTTP/1.1", 404),
        (b"GET /broken HTTP/1.1", 500),
        (b"POST /here HTTP/1.1", 405),
        (b"GET http://x/here HTTP/1.1", 400),
        (b"GET /here HTTP/2", 400),
        (b"GET  /here HTTP/1.1", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1", 400),
        (b"GET /h\xc3\xa9re HTTP/1.1", 400),
        (b"\x16\x03\x01\x02", 400),
        (b"GET /here HTTP/1.1\r\nX: " + b"y" * LONGEST_REQUEST, 431),
    ],
)
async def test_each_request_gets_its_status(request_line: bytes, status: int) -> None:
    """And the server lives on."""
    async with serving() as server:
        answer = await ask(server, request_line + b"\r\n\r\n")
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert (await ask(server, GET)).endswith(b"here\n")


async def test_head_gives_the_length_and_no_body() -> None:
    """Probes of some kinds ask so."""
    async with serving() as server:
        answer = await ask(server, GET.replace(b"GET", b"HEAD"))
    assert b"Content-Length: 5" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_a_large_page_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much the peer takes at a time."""
    # On a busy machine so much takes longer than a peer is given.
    monkeypatch.setattr(http_server, "PATIENCE", 60.0)
    async with serving() as server:
        answer = await ask(server, GET.replace(b"/here", b"/large"))
    assert len(answer.partition(b"\r\n\r\n")[2]) == 16 * 1024 * 1024


async def test_a_peer_that_sends_or_takes_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow peer costs a socket for some seconds, and no more."""
    monkeypatch.setattr(http_server, "PATIENCE", 0.2)
    asked = asyncio.Event()

    async def waited_for() -> Answer:
        asked.set()
        return await large()

    async with serving(pages={**PAGES, "/large": waited_for}) as server:
        assert await ask(server, b"GET /here HTT") == b""
        assert await ask(server, b"", end=True) == b""
        assert await ask(server, GET.replace(b"/here", b"/never")) == b""
        _, writer = await asyncio.open_connection("127.0.0.1", server.ports[0], limit=1024)
        writer.write(GET.replace(b"/here", b"/large"))
        async with asyncio.timeout(60):
            await asked.wait()
            await asyncio.wait(server._exchanges)
        writer.close()
        monkeypatch.undo()
        assert (await ask(server, GET)).endswith(b"here\n")


async def test_more_peers_than_it_serves_are_turned_away_and_the_next_is_served() -> None:
    """A flood holds a few sockets and no memory."""
    async with serving() as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.ports[0]) for _ in range(MOST_AT_ONCE + 5)]
        try:
            async with asyncio.timeout(60):
                ended = [asyncio.ensure_future(reader.read()) for reader, _ in idle]
                done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
                while len(done) < 5:
                    more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    done |= more
            assert len(server._exchanges) == MOST_AT_ONCE
        finally:
            for _, writer in idle:
                writer.close()
            await asyncio.gather(*ended, return_exceptions=True)
        async with asyncio.timeout(60):
            while not (await ask(server, GET)).endswith(b"here\n"):
                continue


async def test_peers_that_say_nothing_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was there first gives way: who holds every connection must not get the agent killed as hung."""
    monkeypatch.setattr(http_server, "PATIENCE", 1000.0)
    monkeypatch.setattr(http_server, "SLOW", 0.05)
    async with serving() as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.ports[0]) for _ in range(MOST_AT_ONCE)]
        async with asyncio.timeout(60):
            while not (await ask(server, GET)).endswith(b"here\n"):
                continue
            assert await idle[0][0].read() == b""
        for _, writer in idle:
            writer.close()


async def test_it_listens_on_ipv6_written_either_way() -> None:
    """Addresses are written with brackets where a port follows."""
    for address in ("::1", "[::1]"):
        async with serving(address=address) as server:
            assert (await ask(server, GET, address="::1")).endswith(b"here\n")


class ListenedTo(SystemClock):
    """A clock that tells when somebody begins to wait for the port, and makes that short."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait, for the port only a little."""
        if seconds == http_server.BIND_AGAIN:
            self.asked.set()
            seconds = 0.05
        await super().sleep(seconds)


async def test_a_port_that_is_taken_is_waited_for() -> None:
    """The agent that we replace may not have left yet, and slices must not wait for a page."""
    clock = ListenedTo()
    with contextlib.ExitStack() as kept:
        port = any_port(keep=kept.enter_context)
        server = HttpServer(address="127.0.0.1", port=port, pages=PAGES, clock=clock)
        with socket.create_server(("127.0.0.1", port)):
            task = asyncio.ensure_future(server.run())
            async with asyncio.timeout(60):
                await clock.asked.wait()
            assert not server.serving.is_set()
        async with asyncio.timeout(60):
            await server.serving.wait()
        assert (await ask(server, GET)).endswith(b"here\n")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_BYTES = st.one_of(
    st.binary(max_size=3 * LONGEST_REQUEST),
    st.lists(
        st.sampled_from([b"GET", b" ", b"/here", b"HTTP/1.1", b"\r\n", b"\n", b"\x00", b":", b"%"]), max_size=12
    ).map(b"".join),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(_BYTES, min_size=1, max_size=4))
async def test_garbage_breaks_nothing(sent: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    """Each gets an answer in HTTP or a hang-up, and then the page is still served, with nothing in the log."""
    caplog.clear()
    async with serving() as server:
        for one in sent:
            answer = await ask(server, one, end=True)
            assert not answer or answer.startswith(b"HTTP/1.1 ")
        assert (await ask(server, GET)).endswith(b"here\n")
    assert [record for record in caplog.records if record.levelname == "ERROR" and "broken" not in record.message] == []


@given(st.binary(max_size=300))
def test_any_request_is_understood_or_refused(request: bytes) -> None:
    """And every answer can be written."""
    found = read(request)
    assert isinstance(found, Asked) or found.status in {400, 405}
    if isinstance(found, Answer):
        assert written(found).startswith(b"HTTP/1.1 4")
