"""Watches on their way: slow readers, ends, bookmarks, over HTTP and in one process."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from aliquot_core.objects import Lease
from aliquot_kube.errors import ConflictError, NotFoundError, UnreachableError
from aliquot_kube.transport import Question
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.apiserver.embedded import kubeconfig, serving
from aliquot_standalone.apiserver.exchange import Answer, Request, Stream
from aliquot_standalone.apiserver.frontend import Frontend
from aliquot_standalone.apiserver.http import HttpServer
from aliquot_standalone.apiserver.store import Store
from aliquot_standalone.apiserver.streaming import Timing, WatchSession
from support.clocks import VirtualClock
from support.embedded_api import NOW, make_frontend

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
TIMING = Timing(bookmark=10.0, watch=100.0, patience=5.0)


def create(server: Frontend, name: str, *, padding: int = 0) -> None:
    """Store a lease."""
    body = msgspec.json.encode({"metadata": {"name": name, "annotations": {"padding": "x" * padding}}})
    path = tuple(LEASES.strip("/").split("/"))
    answer = server.handle(Request(method="POST", path=path, body=body), now=NOW)
    assert isinstance(answer, Answer)
    assert answer.code == 201


def stream_of(server: Frontend, **query: str) -> Stream:
    """Begin a watch."""
    path = tuple(LEASES.strip("/").split("/"))
    stream = server.handle(Request(method="GET", path=path, query={"watch": "1", **query}), now=NOW)
    assert isinstance(stream, Stream)
    return stream


class Reader:
    """A client's end of a session, which reads only when it is told to."""

    def __init__(self, *, stream: Stream, clock: VirtualClock) -> None:
        self.aborted = False
        self.lines: list[dict[str, Any]] = []
        self._reading = asyncio.Event()
        self._reading.set()
        self.session = WatchSession(stream=stream, clock=clock, timing=TIMING, write=self._write, abort=self._abort)

    def stop_reading(self) -> None:
        """Leave the socket full."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        """Empty the socket from now on."""
        self._reading.set()

    @property
    def told(self) -> list[str]:
        """Give what came, in short."""
        return [line["object"]["metadata"].get("name", line["type"]) for line in self.lines]

    async def _write(self, data: bytes) -> None:
        await self._reading.wait()
        self.lines += [msgspec.json.decode(line) for line in data.splitlines()]

    def _abort(self) -> None:
        self.aborted = True


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_reader_that_history_overtakes_is_told_so() -> None:
    """A reader too slow for the bounded history gets a 410 and the end; writers never waited for it."""
    server = make_frontend(keep=5)
    reader = Reader(stream=stream_of(server, resourceVersion=str(server.store.version)), clock=VirtualClock())
    reader.stop_reading()
    running = asyncio.create_task(reader.session.run())
    for number in range(30):
        create(server, f"l{number}")
        reader.session.wake()
        await settle()
    reader.go_on_reading()
    await running
    assert reader.told == ["l0", "ERROR"]
    assert reader.lines[-1]["object"]["code"] == 410


async def test_a_long_backlog_is_told_without_another_write() -> None:
    """A reader far behind is brought up to now in one go, and does not wait for the next change to wake it."""
    clock, server = VirtualClock(), make_frontend()
    start = str(server.store.version)
    for number in range(1_200):
        create(server, f"l{number}")
    reader = Reader(stream=stream_of(server, resourceVersion=start), clock=clock)
    running = asyncio.create_task(reader.session.run())
    await clock.advance(1)
    told = len(reader.lines)
    await clock.advance(TIMING.watch)
    await running
    assert told == 1_200


async def test_a_reader_that_never_reads_is_cut() -> None:
    """When its time is over and its patience too, the connection of a stuck reader is aborted."""
    clock, server = VirtualClock(), make_frontend()
    create(server, "one")
    reader = Reader(stream=stream_of(server), clock=clock)
    reader.stop_reading()
    running = asyncio.create_task(reader.session.run())
    aborted = []
    for seconds in (TIMING.watch + TIMING.patience - 1, 1.0):
        await clock.advance(seconds)
        aborted.append(reader.aborted)
    assert aborted == [False, True]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_bookmarks_come_while_nothing_happens() -> None:
    """A quiet watch is told now and then up to which version it has seen all, and once more at its end."""
    clock, server = VirtualClock(), make_frontend()
    query = {"resourceVersion": str(server.store.version), "allowWatchBookmarks": "1", "timeoutSeconds": "25"}
    reader = Reader(stream=stream_of(server, **query), clock=clock)
    running = asyncio.create_task(reader.session.run())
    server.store.put("others", "x", {"metadata": {"name": "x"}}, fields={})
    await clock.advance(10)
    assert reader.told == ["BOOKMARK"]
    assert reader.lines[0]["object"]["metadata"]["resourceVersion"] == str(server.store.version)
    await clock.advance(10)
    await clock.advance(5)
    await running
    assert reader.told == ["BOOKMARK"] * 3


async def test_without_leave_there_are_no_bookmarks() -> None:
    """A watcher that did not ask for bookmarks ends without one."""
    clock, server = VirtualClock(), make_frontend()
    reader = Reader(stream=stream_of(server, resourceVersion="1", timeoutSeconds="25"), clock=clock)
    running = asyncio.create_task(reader.session.run())
    await clock.advance(25)
    await running
    assert reader.told == []


@asynccontextmanager
async def http_server(**options: Any) -> AsyncIterator[tuple[HttpServer, aiohttp.ClientSession]]:
    """Serve over HTTP, with a client."""
    async with serving(clock=VirtualClock(), timing=TIMING, **options) as server, aiohttp.ClientSession() as client:
        yield server, client


async def test_closing_the_server_ends_its_watches() -> None:
    """A watch ends in order when the server closes."""
    async with aiohttp.ClientSession() as client:
        async with serving(clock=VirtualClock(), timing=TIMING) as server:
            answer = await client.get(f"{server.url}{LEASES}", params={"watch": "1"})
            assert answer.status == 200
        assert await answer.read() == b""


async def test_a_client_that_leaves_is_forgotten() -> None:
    """Writers go on when a watcher's connection is gone, and nothing is left of its session."""
    async with http_server() as (server, client):
        answer = await client.get(f"{server.url}{LEASES}", params={"watch": "1"})
        answer.close()
        for number in range(50):
            body = {"metadata": {"name": f"l{number}"}}
            async with client.post(f"{server.url}{LEASES}", json=body) as created:
                assert created.status == 201
        async with client.get(f"{server.url}{LEASES}") as listed:
            assert len((await listed.json())["items"]) == 50


async def test_a_watcher_that_does_not_read_holds_up_nobody() -> None:
    """With a watcher's socket full, writes go on; the watcher then finds a 410 behind what it had been sent."""
    async with http_server(store=Store(keep=20)) as (server, client):
        start = str(server_version(await (await client.get(f"{server.url}{LEASES}")).json()))
        watcher = await client.get(f"{server.url}{LEASES}", params={"watch": "1", "resourceVersion": start})
        for number in range(200):
            body = {"metadata": {"name": f"l{number}", "annotations": {"padding": "x" * 200_000}}}
            async with client.post(f"{server.url}{LEASES}", json=body) as created:
                assert created.status == 201
            async with client.delete(f"{server.url}{LEASES}/l{number}") as gone:
                assert gone.status == 200
        events = [msgspec.json.decode(line) async for line in lines_of(watcher)]
        assert events[-1]["type"] == "ERROR"
        assert events[-1]["object"]["code"] == 410
        assert len(events) < 400


def server_version(listed: dict[str, Any]) -> int:
    """Give a list's version."""
    return int(listed["metadata"]["resourceVersion"])


async def lines_of(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Cut a stream into lines of any length."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


async def test_tokens_say_who_calls() -> None:
    """With tokens, a caller without one or with an unknown one is not known."""
    async with http_server(tokens={"secret": "somebody"}) as (server, client):
        for headers, code in (
            ({}, 401),
            ({"Authorization": "Bearer other"}, 401),
            ({"Authorization": "Bearer secret"}, 200),
            ({"Authorization": aiohttp.encode_basic_auth("anybody", "secret")}, 200),
            ({"Authorization": aiohttp.encode_basic_auth("secret", "other")}, 401),
            ({"Authorization": "Basic no base64"}, 401),
        ):
            async with client.get(f"{server.url}{LEASES}", headers=headers) as answer:
                body = await answer.json()
                assert answer.status == code
                assert body["kind"] == ("LeaseList" if code == 200 else "Status")


async def test_a_body_that_is_too_large() -> None:
    """A body beyond the limit is refused with a Status."""
    async with http_server() as (server, client):
        body = io.BytesIO(b'{"metadata": {"name": "one"}, "data": {"a": "%s"}}' % (b"x" * 4 * 1024 * 1024))
        async with client.post(f"{server.url}/api/v1/namespaces/default/configmaps", data=body) as answer:
            assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")


def test_a_kubeconfig_leads_to_the_server() -> None:
    """The configuration names the address, and the token where there is one: in the address too, for kubectl."""
    assert kubeconfig("http://127.0.0.1:1")["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1"}
    config = kubeconfig("http://127.0.0.1:1", token="secret")
    assert config["clusters"][0]["cluster"] == {"server": "http://aliquot:secret@127.0.0.1:1"}
    assert config["users"][0]["user"] == {"token": "secret"}


class Unlucky:
    """A wire on which each thing goes wrong when a test says so."""

    def __init__(self) -> None:
        self.lose_question = False
        self.lose_answer = False
        self.repeat = 1

    async def on_question(self, question: Question) -> None:
        """Lose it, if that is said."""
        if self.lose_question:
            raise UnreachableError("lost on the way", where=question.where)

    async def on_answer(self, question: Question) -> None:
        """Lose it, if that is said."""
        if self.lose_answer:
            raise UnreachableError("the answer was lost", where=question.where)

    async def on_line(self, question: Question, line: bytes) -> Sequence[bytes]:
        """Repeat it, or break off."""
        if not self.repeat:
            raise UnreachableError("cut in the middle", where=question.where)
        return [line] * self.repeat


def post(name: str) -> Question:
    """Ask for a new lease."""
    return Question(method="POST", path=LEASES, body=msgspec.json.encode({"metadata": {"name": name}}))


def get(name: str) -> Question:
    """Ask for a lease."""
    return Question(method="GET", path=f"{LEASES}/{name}")


async def test_a_direct_transport_answers_as_a_wire_would() -> None:
    """Answers are bytes, and refusals are raised by their kind."""
    transport = DirectTransport(frontend=make_frontend(), clock=VirtualClock())
    created = await transport.request(post("one"))
    assert created.status == 201
    assert msgspec.json.decode(created.body, type=Lease).metadata.name == "one"
    with pytest.raises(ConflictError):
        await transport.request(post("one"))
    with pytest.raises(NotFoundError):
        await transport.request(get("two"))


async def test_a_lost_question_does_nothing_and_a_lost_answer_hides_what_was_done() -> None:
    """The client can't tell the two apart; the server's state can."""
    faults = Unlucky()
    transport = DirectTransport(frontend=make_frontend(), clock=VirtualClock(), faults=faults)
    faults.lose_question = True
    with pytest.raises(UnreachableError):
        await transport.request(post("never"))
    faults.lose_question, faults.lose_answer = False, True
    with pytest.raises(UnreachableError):
        await transport.request(post("hidden"))
    faults.lose_answer = False
    assert (await transport.request(get("hidden"))).status == 200
    with pytest.raises(NotFoundError):
        await transport.request(get("never"))


async def test_lines_of_a_direct_watch_repeat_and_break_off() -> None:
    """A watch's lines come as often as the wire says, until it is cut."""
    server, faults = make_frontend(), Unlucky()
    transport = DirectTransport(frontend=server, clock=VirtualClock(), faults=faults, timing=TIMING)
    faults.repeat = 2
    query = {"watch": "1", "resourceVersion": str(server.store.version)}
    async with transport.stream(Question(method="GET", path=LEASES, query=query)) as lines:
        create(server, "one")
        names = [msgspec.json.decode(await anext(lines))["object"]["metadata"]["name"] for _ in range(2)]
        faults.repeat = 0
        create(server, "two")
        with pytest.raises(UnreachableError):
            await anext(lines)
    assert names == ["one", "one"]


async def test_a_direct_watch_ends_with_the_server() -> None:
    """When the server goes away, what is there is delivered, and then the lines end."""
    server = make_frontend()
    transport = DirectTransport(frontend=server, clock=VirtualClock(), timing=TIMING)
    create(server, "one")
    async with transport.stream(Question(method="GET", path=LEASES, query={"watch": "1"})) as lines:
        first = msgspec.json.decode(await anext(lines))
        transport.cut_all()
        rest = [line async for line in lines]
    assert first["object"]["metadata"]["name"] == "one"
    assert rest == []


async def test_a_direct_watch_that_is_refused() -> None:
    """Entering a watch that can't be raises what the server said."""
    transport = DirectTransport(frontend=make_frontend(), clock=VirtualClock())
    with pytest.raises(NotFoundError):
        async with transport.stream(Question(method="GET", path="/api/v1/nothings", query={"watch": "1"})):
            pass
