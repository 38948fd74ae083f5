"""Streams of the real transport: whole lines, silence and cuts, and neither a flood nor its reader holds up others."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from aliquot_kube.conveyor import BELT_BYTES
from aliquot_kube.errors import (
    GarbledError,
    GoneError,
    UnreachableError,
)
from aliquot_kube.questions import Question, Timeouts
from support.kube_ways import LIST, Connect, endless_silence, failing, silence
from support.scripted_http import Exchange, ScriptedServer


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
    with ScriptedServer(silence) as server:
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


async def test_leaving_a_stream_ends_it_at_once(connect: Connect) -> None:
    """A watch that is left or cancelled amid silence lets go of its thread and its connection."""
    with ScriptedServer(endless_silence) as server:
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
    with ScriptedServer(endless_silence, silence) as server:
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
