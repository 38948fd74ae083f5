"""The short way of a call: replies in order and in one write, and who is handed over to the long way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.web.calls import Call, Offered, Replied, Reply
from aliquot_scheduler.web.heads import HOP
from aliquot_scheduler.web.idle import FIRST, LOOK, NEXT, IdleConnections
from aliquot_scheduler.web.short_way import ShortWay
from support.clocks import VirtualClock

LARGEST = 100


class Wire(asyncio.Transport):
    """A connection without a network: what was written, each write by itself, and what was done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_reading_now = True
        self.ended = ""
        self.taken_by: asyncio.BaseProtocol | None = None

    def write(self, data: Any) -> None:
        """Note it."""
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        """Whether either of the next two was called."""
        return bool(self.ended)

    def close(self) -> None:
        """Hang up when all is sent."""
        self.ended = "closed"

    def abort(self) -> None:
        """Hang up now."""
        self.ended = "aborted"

    def pause_reading(self) -> None:
        """Nothing more is to come."""
        self.is_reading_now = False

    def resume_reading(self) -> None:
        """It may come again."""
        self.is_reading_now = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Somebody else has it now."""
        self.taken_by = protocol


class LongWay(asyncio.Protocol):
    """Whoever takes a connection over, and what it gets."""

    def __init__(self) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is ours."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """With these bytes."""
        self.got += data


class Desk:
    """Replies with what it was asked: at once, or where the body says so when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Call] = []
        self.go_on = asyncio.Event()

    def reply(self, call: Call) -> Replied:
        """The body, backwards."""
        self.asked.append(call)
        return self._later(call) if call.body == b"later" else Reply(body=call.body[::-1])

    async def _later(self, call: Call) -> Reply:
        await self.go_on.wait()
        return Reply(body=call.body[::-1])


class Stand:
    """One connection on the short way."""

    def __init__(self, *, why_stranger: str = "") -> None:
        self.clock, self.desk, self.wire, self.long_way = VirtualClock(), Desk(), Wire(), LongWay()
        self.idle = IdleConnections(clock=self.clock)
        offered = Offered(replies={"/ask": self.desk.reply}, stranger=lambda _: why_stranger, largest=LARGEST)
        self.short = ShortWay(offered=offered, long_way=lambda: self.long_way, idle=self.idle)
        self.connection = self.short()
        self.connection.connection_made(self.wire)

    def send(self, data: bytes) -> None:
        """These bytes come."""
        self.connection.data_received(data)

    @property
    def bodies(self) -> list[bytes]:
        """Of all replies."""
        return [one.partition(b"\r\n\r\n")[2] for one in self.wire.written]


def request(body: bytes, *, path: str = "/ask", more: str = "") -> bytes:
    """A usual call."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds; the test's own limit of time ends it otherwise."""
    while not holds():  # noqa: ASYNC110 - nothing sets an event when a wire is written to
        await asyncio.sleep(0)


async def test_a_call_is_replied_to_in_one_write_as_soon_as_it_is_there() -> None:
    """Before anything else runs; and who passed it on is told."""
    stand = Stand()
    stand.send(request(b"abc", more=f"{HOP}: other\r\n"))
    assert stand.desk.asked == [Call(path="/ask", body=b"abc", hop="other")]
    assert stand.wire.written == [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\ncba"]


@given(bodies=st.lists(st.binary(max_size=LARGEST), max_size=4), data=st.data())
async def test_calls_are_replied_to_in_their_order_however_they_come(bodies: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere: in a head, in a body, or several at once."""
    stand = Stand()
    left = b"".join(request(body) for body in bodies)
    while left:
        size = data.draw(st.integers(min_value=1, max_value=len(left)))
        stand.send(left[:size])
        left = left[size:]
    stand.desk.go_on.set()
    await until(lambda: len(stand.wire.written) == len(bodies))
    assert stand.bodies == [body[::-1] for body in bodies]
    assert stand.long_way.transport is None


async def test_the_next_call_waits_for_the_reply_to_this_one() -> None:
    """And whoever sends more meanwhile is not read any further."""
    stand = Stand()
    stand.send(request(b"later"))
    assert stand.wire.is_reading_now
    stand.send(request(b"next"))
    assert (len(stand.desk.asked), stand.wire.is_reading_now) == (1, False)
    stand.desk.go_on.set()
    await until(lambda: len(stand.wire.written) == 2)
    assert (stand.bodies, stand.wire.is_reading_now) == ([b"retal", b"txen"], True)


async def test_replies_that_nobody_fetches_stop_the_reading() -> None:
    """Until they are fetched: else a caller could fill our memory with them."""
    stand = Stand()
    stand.connection.pause_writing()
    stand.send(request(b"one") + request(b"two"))
    assert (stand.desk.asked, stand.wire.is_reading_now) == ([], False)
    stand.connection.resume_writing()
    assert (stand.bodies, stand.wire.is_reading_now) == ([b"eno", b"owt"], True)


@pytest.mark.parametrize(
    ("odd", "why_stranger"),
    [
        (request(b"{}", path="/other"), ""),
        (request(b"{}", more="Connection: close\r\n"), ""),
        (request(b"x" * (LARGEST + 1)), ""),
        (request(b"{}"), "no client certificate"),
        (b"GET /ask HTTP/1.1\r\nHost: x\r\n\r\n", ""),
        (b"POST /ask HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", ""),
    ],
)
async def test_whatever_is_not_ours_goes_the_long_way_as_it_came(odd: bytes, why_stranger: str) -> None:
    """With all that came behind it, and the connection stays there."""
    stand = Stand(why_stranger=why_stranger)
    stand.send(odd + b"more")
    assert (stand.long_way.got, stand.long_way.transport) == (odd + b"more", stand.wire)
    assert stand.wire.taken_by is stand.long_way
    assert (stand.desk.asked, stand.short.transports()) == ([], set())


async def test_a_connection_is_handed_over_behind_the_replies_that_are_due() -> None:
    """Also where one of these takes its time."""
    stand = Stand()
    stand.send(request(b"later") + request(b"at once") + request(b"{}", path="/other"))
    assert stand.long_way.transport is None
    stand.desk.go_on.set()
    await until(lambda: stand.long_way.transport is not None)
    assert (stand.bodies, stand.long_way.got) == ([b"retal", b"ecno ta"], request(b"{}", path="/other"))


async def test_what_is_under_way_ends_though_its_caller_has_hung_up() -> None:
    """Nothing is written to nobody."""
    stand = Stand()
    stand.send(request(b"later"))
    stand.wire.close()
    stand.connection.connection_lost(None)
    stand.desk.go_on.set()
    await stand.short.leave(patience=30.0)
    assert (len(stand.desk.asked), stand.wire.written) == (1, [])


async def test_a_reply_that_fails_ends_its_connection() -> None:
    """Whoever asked must not wait for what never comes."""
    stand = Stand()
    # Nobody waits for the task: the loop tells of it when it is forgotten.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def fail() -> Reply:
        raise ZeroDivisionError

    stand.short._offered.replies["/ask"] = lambda _: fail()
    stand.send(request(b"{}"))
    await until(lambda: stand.wire.ended == "aborted")
    assert stand.wire.written == []


async def test_who_leaves_lets_calls_end_and_hangs_up_then() -> None:
    """An idle connection at once."""
    stand, other = Stand(), Wire()
    stand.short().connection_made(other)
    stand.send(request(b"later"))
    leaving = asyncio.create_task(stand.short.leave(patience=30.0))
    await until(lambda: other.ended == "closed")
    assert (stand.wire.ended, leaving.done()) == ("", False)
    stand.desk.go_on.set()
    await leaving
    assert (stand.bodies, stand.wire.ended) == ([b"retal"], "closed")


async def test_a_call_that_does_not_come_whole_is_not_waited_for_as_long_as_the_next_one() -> None:
    """Nor is the time anew with each of its bytes."""
    stand = Stand()
    watching = asyncio.create_task(stand.idle.run(stand.short.transports))
    stand.send(request(b"{}"))
    await stand.clock.advance(NEXT / 2)
    assert stand.wire.ended == ""
    for byte in request(b"x" * 50)[: int(FIRST / LOOK) + 1]:
        stand.send(bytes([byte]))
        await stand.clock.advance(LOOK)
    assert stand.wire.ended == "aborted"
    watching.cancel()
