"""Who follows the page is told what changed, in its time; a slow reader, no leader or a defect holds up nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from aliquot_scheduler.page.hub import Glance, NobodyLeadsError
from aliquot_scheduler.page.settings import PageSettings
from support.clocks import VirtualClock
from support.page_stage import PageStage, Served, events, get, page_served, until


def readers(served: Served, count: int) -> Callable[[], Awaitable[bool]]:
    """So many follow."""

    async def holds() -> bool:
        return served.hub.readers == count

    return holds


def looks(served: Served, count: int) -> Callable[[], Awaitable[bool]]:
    """It was looked so often."""

    async def holds() -> bool:
        return served.hub._looks >= count

    return holds


async def test_a_reader_is_told_only_what_changed_since_its_page(
    stage: PageStage, session: aiohttp.ClientSession
) -> None:
    """The document names what it shows; the stream begins there, and again there after a break."""
    async with page_served(stage) as served:
        _, text = await get(session, f"{served.url}/page")
        since = text.split('data-serial="')[1].split('"')[0]
        stage.end("u0")
        told = events(session, f"{served.url}/page/events?view=&since={since}")
        serial, changes = await anext(told)
        assert list(changes["nodes"]["set"]) == ["n0"]
        assert "keys" not in changes["nodes"]
        assert "legend" not in changes
        await told.aclose()
        stage.submit("u1", 30, 1000, queue="red")
        stage.run()
        async with session.get(f"{served.url}/page/events?view=&since=x", headers={"Last-Event-ID": serial}) as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    assert set(json.loads(line[6:])) <= {"nodes", "totals"}
                    break


async def test_a_reader_who_knows_nothing_is_told_everything(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """With a serial of another leader, or none."""
    async with page_served(stage) as served:
        _, changes = await anext(events(session, f"{served.url}/page/events?view=nodes/n0&since=gone"))
        assert set(changes) == {"node-state", "gpus", "pods", "pods-rest"}


async def test_a_slow_reader_holds_up_nobody_and_costs_no_memory(
    stage: PageStage, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes nothing is cut off in time, while others are told as ever."""
    monkeypatch.setattr("aliquot_scheduler.page.routes._PATIENCE", 0.3)
    async with page_served(stage, settings=PageSettings(every=0.02)) as served:
        host, _, port = served.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(b"GET /page/events?view= HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        await until(readers(served, 1))
        # A node with a very long reason makes each change fill what the system buffers.
        long = "x" * 2_000_000
        told = events(session, f"{served.url}/page/events?view=&since=")
        at = 0
        while served.hub.readers > 1 or at < 2:
            at += 1
            stage.picture.nodes["n0"].out = f"{at} {long}"
            async with asyncio.timeout(60):
                async for _, changes in told:
                    if f">{at} " in changes.get("nodes", {}).get("set", {}).get("n0", ""):
                        break
        assert at < 20
        writer.close()


async def test_readers_are_numbered(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """One too many is asked to come later; who leaves makes room."""
    async with page_served(stage, settings=PageSettings(every=0.05, readers=2)) as served:
        url = f"{served.url}/page/events?view="
        one, two = await session.get(url), await session.get(url)
        async with session.get(url) as answer:
            assert (answer.status, "Retry-After" in answer.headers) == (503, True)
        one.close()
        two.close()

        async def gone() -> bool:
            # A reader that is gone is found out by what is said to it.
            stage.submit(f"x{served.hub._looks}", 1, 1)
            return served.hub.readers == 0

        await until(gone)
        async with session.get(url) as answer:
            assert answer.status == 200


async def test_nobody_looks_where_nobody_reads(stage: PageStage) -> None:
    """Without readers the picture is gone over only for the history."""
    clock = VirtualClock()
    async with page_served(stage, settings=PageSettings(every=1.0, sample=60.0), clock=clock) as served:
        await clock.advance(180.0)
        assert served.hub._looks == 4


async def test_what_was_seen_a_while_ago_is_not_shown_as_of_now(
    stage: PageStage, session: aiohttp.ClientSession
) -> None:
    """Where nobody follows, whoever asks has it looked anew, but not more often than readers are told."""
    clock = VirtualClock()
    async with page_served(stage, settings=PageSettings(every=1.0, sample=3600.0), clock=clock) as served:
        await clock.advance(0.0)
        assert "60 % granted" in (await get(session, f"{served.url}/page"))[1]
        stage.end("u0")
        assert "60 % granted" in (await get(session, f"{served.url}/page"))[1]
        await clock.advance(1.0)
        assert "60 % granted" not in (await get(session, f"{served.url}/page"))[1]


async def test_readers_are_let_go_when_the_server_ends(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """A page that is open somewhere does not hold up the end of the centre."""
    async with page_served(stage) as served:
        told = events(session, f"{served.url}/page/events?view=")
        await anext(told)
        begun = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begun < 0.4


async def test_a_view_asked_for_as_all_ends_is_no_defect(stage: PageStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the asking and the drawing the hub may end, and says what it says from then on."""
    async with page_served(stage) as served:
        hub, glance = served.hub, await served.hub.glance()

        async def last_glance() -> Glance:
            served.looking.cancel()
            return glance

        monkeypatch.setattr(hub, "glance", last_glance)
        with pytest.raises(NobodyLeadsError):
            await hub.drawn(())


async def test_without_a_leader_that_is_said(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """And the page comes back by itself."""
    stage.leads = False
    async with page_served(stage) as served:
        status, text = await get(session, f"{served.url}/page")
        assert (status, "Nobody leads just now" in text, 'http-equiv="refresh"' in text) == (503, True, True)
        stage.leads = True
        assert (await get(session, f"{served.url}/page"))[0] == 200


async def test_a_defect_while_looking_stops_nothing_else(stage: PageStage, session: aiohttp.ClientSession) -> None:
    """What is wrong with the page is logged; it goes on when it can."""
    async with page_served(stage, settings=PageSettings(every=0.01, sample=0.01)) as served:
        turns, stage.queues = stage.queues, None  # type: ignore[assignment]  # a defect
        assert (await get(session, f"{served.url}/page"))[0] == 500
        stage.queues = turns
        before = served.hub._looks
        await until(looks(served, before + 2))
        assert (await get(session, f"{served.url}/page"))[0] == 200
