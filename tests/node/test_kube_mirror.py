"""The live copy end to end, over real sockets, from a server in every kind of trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes.client import Configuration

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.credentials import Credentials
from aliquot_kube.mirror import Mirror
from aliquot_kube.resources import PODS
from aliquot_kube.transport import HttpTransport
from support.clocks import LeapingClock
from support.pod_store import GONE_EVENT, PodStore, pod_json
from support.scripted_http import Exchange, Script, ScriptedServer


class Harness:
    """A mirror of pods, what it told, and its clock."""

    def __init__(self, server: ScriptedServer, clock: LeapingClock) -> None:
        self.clock = clock
        self.transport = HttpTransport(credentials=Credentials(lambda: Configuration(host=server.url)))
        self.mirror = Mirror(
            transport=self.transport,
            clock=clock,
            random=lambda: 0.5,
            resource=PODS,
            namespace="default",
            field_selector="spec.nodeName=node1",
            label_selector="a in (b,c)",
        )
        self.changes: list[Change[Pod]] = []
        self._told = asyncio.Event()
        self.mirror.subscribe(self._take)

    def _take(self, change: Change[Pod]) -> None:
        self.changes.append(change)
        self._told.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until what was told has brought a state about."""
        async with asyncio.timeout(60):
            while not reached():
                self._told.clear()
                await self._told.wait()

    def kinds(self) -> list[type]:
        """What was told, in short."""
        return [type(change) for change in self.changes]


@asynccontextmanager
async def mirroring(*scripts: Script) -> AsyncIterator[tuple[Harness, ScriptedServer]]:
    """Run a mirror against a scripted server."""
    with ScriptedServer(*scripts) as server:
        harness = Harness(server, LeapingClock())
        task = asyncio.create_task(harness.mirror.run())
        try:
            yield harness, server
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await harness.transport.close()


def listing(*versions: int, version: int = 100, token: str = "") -> Script:
    """Script a page of pods named by their versions."""
    items = [pod_json(name=f"p{at}", uid=f"u{at}", version=at) for at in versions]
    return lambda exchange: exchange.answer(200, PodStore().page(items=items, version=version, token=token))


def watching(*events: tuple[str, int], end: Callable[[Exchange], None] | None = None) -> Script:
    """Script a watch with these events, which then ends in its way or is silent for ever."""

    def script(exchange: Exchange) -> None:
        exchange.begin_stream()
        for kind, version in events:
            pod = pod_json(name=f"p{version}", uid=f"u{version}", version=version)
            exchange.line({"type": kind, "object": pod})
        (end or Exchange.wait_for_client_to_leave)(exchange)

    return script


def failing(status: int, **headers: str) -> Script:
    """Script a failure."""
    return lambda exchange: exchange.fail(status, **headers)


def _garbage(exchange: Exchange) -> None:
    exchange.line(b"<html>proxy says hello</html>")
    exchange.wait_for_client_to_leave()


def _expired(exchange: Exchange) -> None:
    exchange.line(GONE_EVENT)
    exchange.wait_for_client_to_leave()


def _half_a_line(exchange: Exchange) -> None:
    exchange.chunk(b'{"type":"ADDED","object":{"metadata"')
    exchange.hang_up()


async def test_list_and_watch_ask_as_they_should() -> None:
    """Pages of 500 by selectors and token, then a watch with bookmarks, a time limit and the list's version."""
    async with mirroring(listing(1, token="next"), listing(2), watching()) as (harness, server):
        await harness.mirror.synced()
        await asyncio.to_thread(server.wait_for_requests, 3)
    chosen = {"fieldSelector": "spec.nodeName=node1", "labelSelector": "a in (b,c)"}
    first, second, third = server.requests
    assert first.path == "/api/v1/namespaces/default/pods"
    assert first.query == chosen | {"limit": "500"}
    assert second.query == chosen | {"limit": "500", "continue": "next"}
    seconds = third.query.pop("timeoutSeconds")
    assert 240 <= int(seconds) <= 300
    assert third.query == chosen | {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "100"}
    assert harness.kinds() == [Added, Added, Synced]


@pytest.mark.parametrize(
    "trouble",
    [
        failing(500),
        failing(429, retry_after="1"),
        failing(403),
        lambda exchange: exchange.cut(),
        lambda exchange: exchange.answer(200, b"<html>"),
        lambda exchange: exchange.answer(200, b'{"items":[]}'),
    ],
)
async def test_list_comes_after_trouble(trouble: Script) -> None:
    """Whatever goes wrong with the first list, it is asked for again and told of once."""
    async with mirroring(trouble, trouble, listing(1, 2), watching()) as (harness, _):
        await harness.until(lambda: Synced in harness.kinds())
        assert harness.kinds() == [Added, Added, Synced]
        assert harness.mirror.freshness().synced


@pytest.mark.parametrize("end", [Exchange.hang_up, Exchange.end_stream, _garbage, _half_a_line])
async def test_watch_goes_on_from_where_it_was(end: Callable[[Exchange], None]) -> None:
    """However a watch ends, the next starts at the last version seen, and no event is told twice."""
    scripts = [listing(1), watching(("ADDED", 101), end=end), watching(("ADDED", 102), ("DELETED", 103))]
    async with mirroring(*scripts) as (harness, server):
        await harness.until(lambda: "default/p102" in harness.mirror.objects)
        versions = [request.query.get("resourceVersion") for request in server.requests]
    assert versions == [None, "100", "101"]
    assert harness.kinds() == [Added, Synced, Added, Added]


@pytest.mark.parametrize("gone", [failing(410), watching(end=_expired)])
async def test_forgotten_version_leads_to_a_new_list_with_its_differences(gone: Script) -> None:
    """A 410, as a status or as an event, brings a new list: what changed meanwhile is told, once."""
    async with mirroring(listing(1, 2), gone, listing(2, 3, version=200), watching()) as (harness, server):
        await harness.until(lambda: harness.kinds().count(Synced) == 2)
        await asyncio.to_thread(server.wait_for_requests, 4)
    assert harness.kinds() == [Added, Added, Synced, Deleted, Added, Synced]
    assert server.requests[-1].query["resourceVersion"] == "200"


async def test_refused_watches_are_asked_for_ever_more_seldom() -> None:
    """Between watches that a server refuses the rests grow (the official informer made 45 in 2 s)."""
    refusals = [failing(500)] * 4
    async with mirroring(listing(1), *refusals, watching()) as (harness, server):
        await asyncio.to_thread(server.wait_for_requests, 6)
        assert harness.clock.slept == [0.375, 0.75, 1.5, 3.0]


async def test_late_subscriber_is_told_what_is_known() -> None:
    """Whoever subscribes later gets all objects and the sync, and changes from then on."""
    async with mirroring(listing(1, 2), watching(("MODIFIED", 101))) as (harness, _):
        await harness.mirror.synced()
        late: list[Change[Pod]] = []
        harness.mirror.subscribe(late.append)
        await harness.until(lambda: "default/p101" in harness.mirror.objects)
        assert [type(change) for change in late] == [Added, Added, Synced, Added]


async def test_consumer_that_fails_ends_the_mirror() -> None:
    """A consumer that missed a change would be wrong for ever: its error is not swallowed."""
    with ScriptedServer(listing(1), watching()) as server:
        harness = Harness(server, LeapingClock())

        def fail(_: Change[Pod]) -> None:
            raise ZeroDivisionError

        harness.mirror.subscribe(fail)
        with pytest.raises(ZeroDivisionError):
            await harness.mirror.run()
        await harness.transport.close()


async def test_changed_pod_comes_with_what_it_was() -> None:
    """A MODIFIED carries the very object that was told of before."""

    def change(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.line({"type": "MODIFIED", "object": pod_json(name="p1", uid="u1", version=150)})
        exchange.wait_for_client_to_leave()

    async with mirroring(listing(1), change) as (harness, _):
        await harness.until(lambda: Modified in harness.kinds())
    added, _, modified = harness.changes
    assert isinstance(added, Added)
    assert isinstance(modified, Modified)
    assert modified.old is added.new
    assert modified.new.metadata.resource_version == "150"
