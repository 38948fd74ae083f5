"""POSTs over connections that stay: whatever form an answer has, and a bad one is its connection's last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aliquot_standalone.posts import Place, Poster, PostError

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: one\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH
OPEN_ENDED = b"HTTP/1.1 200 OK\r\n\r\nhello"
HELLO = b"hello"
LOOPBACK = "127.0.0.1"


class Scripted:
    """A server that answers one question after another as a list says, and counts its connections."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.connections = 0
        self.asked: list[bytes] = []
        self.port = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until an answer says that it is the last."""
        self.connections += 1
        while self.answers and not reader.at_eof():
            try:
                self.asked.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2))
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            answer = self.answers.pop(0)
            writer.write(answer)
            if answer in {b"", OPEN_ENDED} or b"HTTP/1.0" in answer:
                break
        writer.close()
        self.closed.set()


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    """A server whose script is still empty."""
    script = Scripted([])
    server = await asyncio.start_server(script.serve, LOOPBACK)
    script.port = server.sockets[0].getsockname()[1]
    yield script
    server.close()


@pytest.fixture
async def poster(scripted: Scripted) -> AsyncIterator[Poster]:
    """Who asks it."""
    poster = Poster(Place(host=LOOPBACK, port=scripted.port), trust=None)
    yield poster
    await poster.close()


async def test_one_connection_carries_many_questions(scripted: Scripted, poster: Poster) -> None:
    """What is asked arrives whole, and the connection stays."""
    scripted.answers = [LENGTH, CHUNKED, EARLY, LENGTH]
    answers = [await poster.post("/path", b"ab", timeout=60, most=100) for _ in range(4)]
    assert (answers, scripted.connections) == ([HELLO] * 4, 1)
    assert scripted.asked[0].startswith(b"POST /path HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nContent-Type: application/json\r\n" in scripted.asked[0]
    assert scripted.asked[0].endswith(b"Content-Length: 2\r\n\r\nab")


async def test_another_connection_follows_one_that_is_over(scripted: Scripted, poster: Poster) -> None:
    """After an answer that ended with its connection, and after one that never came."""
    old = LENGTH.replace(b"1.1", b"1.0")
    scripted.answers = [OPEN_ENDED, old, b"", LENGTH]
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO
    with pytest.raises(PostError, match="closed"):
        await poster.post("/", b"ab", timeout=60, most=100)
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO
    assert scripted.connections == 4


async def test_a_connection_that_was_closed_while_idle_is_not_used(scripted: Scripted, poster: Poster) -> None:
    """Its server has gone or was tired of waiting, which is no failure of the next question."""
    scripted.answers = [LENGTH]
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO
    await scripted.closed.wait()
    # A round trip later than the end of the first: that has been seen by then.
    _, other = await asyncio.open_connection(LOOPBACK, scripted.port)
    other.close()
    await other.wait_closed()
    scripted.answers = [LENGTH]
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO


async def test_an_answer_that_comes_too_late_is_nobodys(scripted: Scripted, poster: Poster) -> None:
    """The next question is not answered by what was asked before."""
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nla"
    scripted.answers = [LENGTH, late, LENGTH]
    # A busy machine may take that long to connect: what is asked over a connection that is there arrives.
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO
    with pytest.raises(TimeoutError):
        await poster.post("/", b"ab", timeout=0.2, most=100)
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO
    assert scripted.connections == 2


async def test_questions_at_once_have_a_connection_each(scripted: Scripted, poster: Poster) -> None:
    """None waits for another's answer."""
    scripted.answers = [LENGTH] * 3
    answers = await asyncio.gather(*(poster.post("/", b"ab", timeout=60, most=100) for _ in range(3)))
    assert (answers, scripted.connections) == ([HELLO] * 3, 3)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nbad", "answered 500: bad"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500, "too long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "no whole answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "no whole answer"),
        (b"what?\r\n\r\n", "no answer in HTTP"),
    ],
)
async def test_what_is_no_good_answer_is_named(scripted: Scripted, poster: Poster, answer: bytes, said: str) -> None:
    """By what is wrong with it; the next question is answered all the same."""
    scripted.answers = [answer, LENGTH]
    with pytest.raises(PostError, match=said):
        await poster.post("/", b"ab", timeout=60, most=100)
    assert await poster.post("/", b"ab", timeout=60, most=100) == HELLO


async def test_nobody_there(scripted: Scripted) -> None:
    """It is said that there is no connection."""
    with_nobody = Poster(Place(host=LOOPBACK, port=1), trust=None)
    with pytest.raises(PostError, match="no connection"):
        await with_nobody.post("/", b"ab", timeout=60, most=100)
    assert scripted.connections == 0
