"""The centre's two servers: probes and metrics beside Kubernetes' own calls, and how it begins and ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import aiohttp.test_utils
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from aliquot_core.settings import Sources
from aliquot_kube.clock import SystemClock
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.extender.verbs import Outcome, Verb
from aliquot_scheduler.web.handshakes import FailedHandshakes
from aliquot_scheduler.web.idle import FIRST, LOOK, NEXT
from aliquot_scheduler.web.pages import StatusPages
from aliquot_scheduler.web.server import LOOK_WHILE_LEAVING, CentreServer, ListenError
from aliquot_scheduler.web.settings import WebSettings
from aliquot_scheduler.web.tls import Tls
from support.centre_http import BINDING, SCHEDULER, Authority, Replica, args, caller, replica
from support.clocks import VirtualClock


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom everybody trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


async def page(port: int, path: str) -> tuple[int, str, str]:
    """Status, kind and text of a page in plain HTTP."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, response.content_type, await response.text()


async def test_probes_tell_what_is_missing(authority: Authority) -> None:
    """A line each; alive is another question than ready."""
    missing = ["nodes were not read yet", "pods were not read yet"]
    async with replica(authority.server_files(), ready=lambda: missing) as centre:
        port = centre.server.status_port
        assert await page(port, "/readyz") == (503, "text/plain", "".join(f"{line}\n" for line in missing))
        assert await page(port, "/healthz") == (200, "text/plain", "ok\n")
        missing.clear()
        assert (await page(port, "/readyz"))[::2] == (200, "ok\n")


async def test_metrics_are_prometheus_and_in_base_units(authority: Authority) -> None:
    """The library's own parser reads them; calls are told by verb and outcome."""
    async with (
        replica(authority.server_files()) as centre,
        caller(authority.caller(authority.signs(SCHEDULER))) as scheduler,
    ):
        await scheduler.post(centre.url("/extender/filter"), args("n1"))
        await scheduler.post(centre.url("/extender/bind"), b"{")
        status, kind, text = await page(centre.server.status_port, "/metrics")
    assert (status, kind) == (200, "text/plain")
    family = {one.name: one for one in text_string_to_metric_families(text)}["aliquot_centre_extender_duration_seconds"]
    assert family.type == "histogram"
    counts = {
        (sample.labels["verb"], sample.labels["outcome"]): sample.value
        for sample in family.samples
        if sample.name.endswith("_count")
    }
    # Those that never occurred too, or their first one would be no increase.
    assert counts.keys() == {(verb, outcome) for verb in Verb for outcome in Outcome}
    assert {how: count for how, count in counts.items() if count} == {
        ("filter", "decided"): 1.0,
        ("bind", "malformed"): 1.0,
    }


class Counting(Collector):
    """Counts how often it is asked, and on which loop."""

    def __init__(self) -> None:
        self.asked = 0

    def collect(self) -> Iterator[Metric]:
        """Fail off the loop: what it would tell of is changed there."""
        assert asyncio.get_running_loop().is_running()
        self.asked += 1
        return iter(())


async def test_scrapes_share_a_page_and_are_collected_on_the_loop() -> None:
    """Many at once cost hardly more than one."""
    registry, counting = CollectorRegistry(), Counting()
    registry.register(counting)
    counting.asked = 0
    pages = StatusPages(registry=registry, alive=list, ready=list)
    (metrics, *_) = pages.routes()
    asked = aiohttp.test_utils.make_mocked_request("GET", "/metrics")
    answers = await asyncio.gather(*(metrics.handler(asked) for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert counting.asked < 20
    pages.close()


async def test_status_pages_are_not_behind_tls_nor_the_extender_before_it(authority: Authority) -> None:
    """Each port has its own."""
    async with replica(authority.server_files()) as centre, caller(authority.caller()) as anyone:
        assert (await page(centre.server.status_port, "/extender/filter"))[0] == 404
        async with anyone.session.get(centre.url("/metrics")) as response:
            assert response.status == 404


async def test_addresses_beside_the_extender_need_no_client_certificate(authority: Authority) -> None:
    """The API server has none for webhooks."""

    async def welcome(_: web.Request) -> web.Response:
        return web.json_response({"allowed": True})

    async with (
        replica(authority.server_files(), also=[web.post("/mutate", welcome)]) as centre,
        caller(authority.caller()) as api_server,
    ):
        assert await api_server.post(centre.url("/mutate"), {}) == (200, {"allowed": True})
        assert (await api_server.post(centre.url("/extender/bind"), BINDING))[0] == 403


async def test_what_is_under_way_when_the_centre_is_told_to_end_is_answered(authority: Authority) -> None:
    """A bind that is being written is not cut off from its answer; new connections find nobody."""
    async with caller(authority.caller(authority.signs(SCHEDULER))) as scheduler:
        async with replica(authority.server_files()) as centre:
            centre.desk.hold = asyncio.Event()
            binding = asyncio.create_task(scheduler.post(centre.url("/extender/bind"), BINDING))
            await centre.desk.holding.wait()
            asyncio.get_running_loop().call_later(0.05, centre.desk.hold.set)
        assert await binding == (200, {"Error": ""})
        with pytest.raises(aiohttp.ClientError):
            await scheduler.post(centre.url("/extender/bind"), BINDING)


async def test_a_caller_that_hangs_up_does_not_undo_a_bind(authority: Authority) -> None:
    """Half a write is none; the desk is let to end what it began."""
    async with replica(authority.server_files()) as centre:
        centre.desk.hold = asyncio.Event()
        async with caller(authority.caller(authority.signs(SCHEDULER))) as scheduler:
            binding = asyncio.create_task(scheduler.post(centre.url("/extender/bind"), BINDING))
            await centre.desk.holding.wait()
            binding.cancel()
        centre.desk.hold.set()
    assert centre.calls("bind", "decided") == 1


async def test_a_body_that_does_not_come_is_waited_for_no_longer_than_its_sender_would(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody holds connections by sending nothing."""
    monkeypatch.setattr("aliquot_scheduler.extender.routes.BODY_PATIENCE", 0.1)

    async def nothing() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with (
        replica(authority.server_files()) as centre,
        caller(authority.caller(authority.signs(SCHEDULER))) as scheduler,
        scheduler.session.post(centre.url("/extender/filter"), data=nothing()) as response,
    ):
        assert response.status == 408
        assert await response.json() == {"error": "the body did not come within 0.1 s"}
        assert (centre.desk.asked, centre.calls("filter", "cut")) == ([], 1)


@pytest.mark.parametrize("head", [b"", b"POST /extender/filter HTTP/1.1\r\nHost: x\r\nX-"])
async def test_who_connects_and_does_not_ask_is_not_waited_for(authority: Authority, head: bytes) -> None:
    """Nor who never comes to the end of it: without a certificate anybody could hold connections for ever."""
    clock = VirtualClock()
    async with replica(authority.server_files(), idling=clock) as centre:
        reader, writer = await asyncio.open_connection("127.0.0.1", centre.server.port, ssl=authority.caller())
        writer.write(head)
        await clock.advance(LOOK)
        assert not reader.at_eof()
        await clock.advance(FIRST)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_was_asked_on_is_kept_longer_than_callers_keep_it(authority: Authority) -> None:
    """And no request is cut, however long its answer takes."""
    clock = VirtualClock()
    context = authority.caller(authority.signs(SCHEDULER))
    async with replica(authority.server_files(), idling=clock) as centre:
        centre.desk.hold = asyncio.Event()
        reader, writer = await asyncio.open_connection("127.0.0.1", centre.server.port, ssl=context)
        body = json.dumps(BINDING).encode()
        head = f"POST /extender/bind HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await centre.desk.holding.wait()
        await clock.advance(2 * NEXT)
        centre.desk.hold.set()
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await reader.readuntil(b"}")
        await clock.advance(NEXT - LOOK)
        assert not reader.at_eof()
        await clock.advance(2 * LOOK)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


class Kept:
    """A connection that its caller uses again; what comes in pieces goes the long way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, way: str) -> None:
        self.reader, self.writer, self._way = reader, writer, way

    @classmethod
    async def to(cls, centre: Replica, authority: Authority, *, way: str) -> Kept:
        """Of a kube-scheduler."""
        context = authority.caller(authority.signs(SCHEDULER))
        return cls(*await asyncio.open_connection("127.0.0.1", centre.server.port, ssl=context), way=way)

    async def ask(self) -> str:
        """The head of the answer to a call."""
        body = json.dumps(BINDING).encode()
        size = f"Content-Length: {len(body)}" if self._way == "short" else "Transfer-Encoding: chunked"
        sent = body if self._way == "short" else f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        self.writer.write(f"POST /extender/bind HTTP/1.1\r\nHost: x\r\n{size}\r\n\r\n".encode() + sent)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        await self.reader.readexactly(int(head.partition("Content-Length: ")[2].partition("\r\n")[0]))
        return head


@pytest.mark.parametrize("way", ["short", "long"])
async def test_who_keeps_a_connection_loses_no_call_when_a_replica_leaves(authority: Authority, way: str) -> None:
    """Go's clients send no POST twice: each is told with its answer that it was the last there, and goes elsewhere."""
    clock = VirtualClock()
    async with replica(authority.server_files(), idling=clock) as centre:
        kept = await Kept.to(centre, authority, way=way)
        assert "Connection: close" not in await kept.ask()
        draining = asyncio.create_task(centre.server.drain())
        await clock.advance(WebSettings().drain / 2)
        late = await Kept.to(centre, authority, way=way)
        for one in (kept, late):
            head = await one.ask()
            assert head.startswith("HTTP/1.1 200 OK\r\n")
            assert "Connection: close" in head
            assert await one.reader.read() == b""
            one.writer.close()
            await one.writer.wait_closed()
        await clock.advance(LOOK_WHILE_LEAVING)
        assert draining.done()


async def test_what_a_replica_that_leaves_refuses_is_the_last_there_too(authority: Authority) -> None:
    """A path that there is not, for one."""
    clock = VirtualClock()
    async with replica(authority.server_files(), idling=clock) as centre:
        kept = await Kept.to(centre, authority, way="long")
        draining = asyncio.create_task(centre.server.drain())
        await clock.advance(LOOK_WHILE_LEAVING)
        kept.writer.write(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        head = (await kept.reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 404 ")
        assert "Connection: close" in head
        kept.writer.close()
        await clock.advance(WebSettings().drain)
        assert draining.done()


async def test_a_replica_leaves_though_a_connection_is_not_used_again(authority: Authority) -> None:
    """After as long as it is told."""
    clock = VirtualClock()
    async with replica(authority.server_files(), idling=clock) as centre:
        kept = await Kept.to(centre, authority, way="short")
        await kept.ask()
        draining = asyncio.create_task(centre.server.drain())
        await clock.advance(WebSettings().drain - LOOK_WHILE_LEAVING)
        assert not draining.done()
        await clock.advance(2 * LOOK_WHILE_LEAVING)
        assert draining.done()
        kept.writer.close()


async def test_a_port_that_is_taken_is_told_by_name(authority: Authority) -> None:
    """And what was opened before is closed again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        tls = Tls(files=authority.server_files(), clock=SystemClock(), look_every=1.0)
        pages = StatusPages(registry=CollectorRegistry(), alive=list, ready=list)
        settings = WebSettings(address="127.0.0.1", port=port, status_port=0)
        clock = SystemClock()
        failed = FailedHandshakes(registry=CollectorRegistry(), clock=clock)
        server = CentreServer(settings=settings, tls=tls, routes=[], pages=pages, clock=clock, failed=failed)
        with pytest.raises(ListenError, match=f"127.0.0.1:{port}: can't listen"):
            await server.run()
    with pytest.raises(aiohttp.ClientError):
        await page(server.status_port, "/healthz")


def test_settings_come_from_a_file_and_the_environment() -> None:
    """Lists are written with commas."""
    sources = Sources(
        environment={"ALIQUOT_WEB_ALLOWED_CLIENTS": "a, b"}, file={"web": {"port": 1}}, file_name="aliquot.toml"
    )
    read = sources.resolve("web", WebSettings).value
    assert (read.allowed_clients, read.port, read.status_address) == (("a", "b"), 1, "127.0.0.1")
    assert CENTRE in WebSettings().allowed_clients
