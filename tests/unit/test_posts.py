"""POSTs over connections that stay: an answer is read however it is cut, and a bad one is its connection's last."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_standalone.posts import AnswerReader, Place, Posted, Poster, PostError

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: one\r\n\r\n"
EMPTY_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH
OPEN_ENDED = b"HTTP/1.1 200 OK\r\n\r\nhello"
HELLO = Posted(status=200, body=b"hello")
LOOPBACK = "127.0.0.1"


def read(text: bytes, cuts: list[int], *, most: int = 100) -> AnswerReader:
    """Feed a text, cut at some places."""
    reader, places = AnswerReader(most=most), sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for begin, end in itertools.pairwise(places):
        reader.feed(text[begin:end])
    return reader


@given(
    answer=st.sampled_from(
        [(LENGTH, HELLO), (CHUNKED, HELLO), (EARLY, HELLO), (EMPTY_CHUNKS, Posted(status=200, body=b""))]
    ),
    cuts=st.lists(st.integers(min_value=0, max_value=200), max_size=8),
)
def test_an_answer_is_the_same_however_it_is_cut(answer: tuple[bytes, Posted], cuts: list[int]) -> None:
    """A length, pieces with or without trailers, early hints: the body is whole, and the connection good for more."""
    reader = read(answer[0], cuts)
    assert (reader.answer, reader.may_go_on) == (answer[1], True)


@given(cut=st.integers(min_value=0, max_value=1000), text=st.sampled_from([LENGTH, CHUNKED, EARLY]))
def test_a_part_is_no_answer(text: bytes, cut: int) -> None:
    """Whatever is missing at the end: there is no answer, and a connection that closes then is a failure."""
    reader = read(text[: cut % len(text)], [])
    assert reader.answer is None
    with pytest.raises(PostError, match="closed before"):
        reader.end()


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    """It is whole once the connection is closed, which is then no good for another question."""
    reader = read(OPEN_ENDED, [20])
    before = reader.answer
    assert (before, reader.end(), reader.may_go_on) == (None, HELLO, False)


@pytest.mark.parametrize(
    "text",
    [
        LENGTH.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        LENGTH.replace(b"1.1", b"1.0"),
        LENGTH + b"HTTP/1.1 200",
    ],
)
def test_a_connection_that_is_over_carries_no_other_question(text: bytes) -> None:
    """The server says so, or has sent more than was asked for."""
    reader = read(text, [])
    assert (reader.answer, reader.may_go_on) == (HELLO, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"SSH-2.0-x\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "no number"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n", "too long"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "no length"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 201, "too long"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "no end"),
    ],
)
def test_what_is_no_answer_is_refused(text: bytes, said: str) -> None:
    """Another protocol, a length that is none, more than was allowed."""
    with pytest.raises(PostError, match=said):
        read(text, [])


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
            if answer in {b"", OPEN_ENDED} or b"close" in answer:
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
    scripted.answers = [LENGTH, CHUNKED, LENGTH]
    answers = [await poster.post("/path", b"ab", timeout=5, most=100) for _ in range(3)]
    assert (answers, scripted.connections) == ([HELLO] * 3, 1)
    assert scripted.asked[0].startswith(b"POST /path HTTP/1.1\r\nHost: 127.0.0.1:")
    assert scripted.asked[0].endswith(b"Content-Length: 2\r\n\r\nab")


async def test_another_connection_follows_one_that_is_over(scripted: Scripted, poster: Poster) -> None:
    """After an answer that ended with its connection, and after one that never came."""
    scripted.answers = [OPEN_ENDED, b"", LENGTH]
    assert await poster.post("/", b"ab", timeout=5, most=100) == HELLO
    with pytest.raises(PostError, match="closed before"):
        await poster.post("/", b"ab", timeout=5, most=100)
    assert await poster.post("/", b"ab", timeout=5, most=100) == HELLO
    assert scripted.connections == 3


async def test_a_connection_that_was_closed_while_idle_is_not_used(scripted: Scripted, poster: Poster) -> None:
    """Its server has gone or was tired of waiting, which is no failure of the next question."""
    scripted.answers = [LENGTH]
    assert await poster.post("/", b"ab", timeout=5, most=100) == HELLO
    await scripted.closed.wait()
    # A round trip later than the end of the first: that has been seen by then.
    _, other = await asyncio.open_connection(LOOPBACK, scripted.port)
    other.close()
    await other.wait_closed()
    scripted.answers = [LENGTH]
    assert await poster.post("/", b"ab", timeout=5, most=100) == HELLO


async def test_an_answer_that_comes_too_late_is_nobodys(scripted: Scripted, poster: Poster) -> None:
    """The next question is not answered by what was asked before."""
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nla"
    scripted.answers = [late, LENGTH]
    with pytest.raises(TimeoutError):
        await poster.post("/", b"ab", timeout=0.2, most=100)
    assert await poster.post("/", b"ab", timeout=5, most=100) == HELLO
    assert scripted.connections == 2


async def test_questions_at_once_have_a_connection_each(scripted: Scripted, poster: Poster) -> None:
    """None waits for another's answer."""
    scripted.answers = [LENGTH] * 3
    answers = await asyncio.gather(*(poster.post("/", b"ab", timeout=5, most=100) for _ in range(3)))
    assert (answers, scripted.connections) == ([HELLO] * 3, 3)
