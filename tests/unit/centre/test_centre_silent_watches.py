"""Watches that fall silent without an end: how long a picture may be frozen, and how long nothing is decided."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aliquot_core.backoff import Backoff
from aliquot_core.names import Names
from aliquot_kube.errors import UnreachableError
from aliquot_kube.mirror import SILENCE
from aliquot_kube.questions import Question, Response
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.centre.watches import BEATS_SILENT, Watches
from aliquot_scheduler.picture.hearing import deaf_after
from support.clocks import VirtualClock

STALE = CentreSettings().stale
# As a real API server does.
BOOKMARK, RENEWAL = 60.0, 2.0
KINDS = {"pods": "Pod", "nodes": "Node", "leases": "Lease", "queues": "Queue", "namespaces": "Namespace"}


class Server:
    """Tells bookmarks each minute, and of Leases each renewal; at command it is gone, or only what is open is."""

    def __init__(self, clock: VirtualClock, *, renewal: float) -> None:
        self._clock = clock
        self._renewal = renewal
        self.away = False
        self.reign = 0
        self.opened: list[tuple[float, str]] = []
        self.heard: dict[str, float] = {}
        self._version = 1

    async def request(self, question: Question) -> Response:
        """An empty list."""
        self._is_there(question)
        kind = KINDS[question.path.rsplit("/", 1)[1]]
        found = {"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": []}
        return Response(status=200, headers={}, body=json.dumps(found).encode())

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch, which honours what silence it was allowed."""
        self._is_there(question)
        kind = question.path.rsplit("/", 1)[1]
        self.opened.append((self._clock.monotonic(), kind))
        yield self._lines(question, kind, reign=self.reign)

    async def _lines(self, question: Question, kind: str, *, reign: int) -> AsyncIterator[bytes]:
        left = float(question.query["timeoutSeconds"])
        pause = self._renewal if kind == "leases" else BOOKMARK
        silence = question.timeouts.silence
        while left > pause:
            await self._clock.sleep(min(pause, silence))
            left -= pause
            if self.away or reign != self.reign or pause > silence:
                await self._clock.sleep(max(silence - pause, 0.0))
                raise UnreachableError("silence for too long", where=question.path)
            self._version += 1
            self.heard[kind] = self._clock.monotonic()
            about = {"metadata": {"resourceVersion": str(self._version)}}
            yield json.dumps({"type": "BOOKMARK", "object": about}).encode()
        await self._clock.sleep(left)

    async def close(self) -> None:
        """Nothing is open."""

    def _is_there(self, question: Question) -> None:
        if self.away:
            raise UnreachableError("no connection", where=question.path)


@asynccontextmanager
async def watching(*, renewal: float = RENEWAL) -> AsyncIterator[tuple[VirtualClock, Server, Watches]]:
    """All watches of a leader, once everything is known."""
    clock = VirtualClock()
    server = Server(clock, renewal=renewal)
    deaf = deaf_after(renewal)
    watches = Watches(transport=server, clock=clock, random=lambda: 0.5, names=Names(), deaf=deaf)
    mirrors = (watches.nodes, watches.pods, watches.leases, watches.queues, watches.namespaces)
    tasks = [asyncio.create_task(mirror.run()) for mirror in mirrors]
    await clock.advance(0)
    assert not watches.why_blind(stale=STALE)
    try:
        yield clock, server, watches
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def blind_in(clock: VirtualClock, watches: Watches, *, seconds: int) -> list[float]:
    """At which of the next seconds nothing may be decided."""
    found: list[float] = []
    for _ in range(seconds):
        await clock.advance(1.0)
        if watches.why_blind(stale=STALE):
            found.append(clock.monotonic())
    return found


async def test_watches_that_are_heard_are_left_alone() -> None:
    """Bookmarks come each minute, and of Leases the leader's own renewals: none is opened anew before its time."""
    async with watching() as (clock, server, watches):
        assert await blind_in(clock, watches, seconds=235) == []
        assert sorted(kind for _, kind in server.opened) == sorted(KINDS)


async def test_a_leader_that_renews_seldom_is_heard_all_the_same() -> None:
    """Where nobody else beats: its watch on Leases is left open, and it is not said to be deaf."""
    async with watching(renewal=20.0) as (clock, server, watches):
        for _ in range(230):
            await clock.advance(1.0)
            assert not watches.why_deaf()
        assert sorted(kind for _, kind in server.opened) == sorted(KINDS)


async def test_half_open_watches_freeze_the_picture_for_a_minute_and_a_half() -> None:
    """Heart-beats for 15 s; and as new watches tell by then, there is no second at which nothing is decided."""
    async with watching() as (clock, server, watches):
        await clock.advance(100.0)
        before, server.reign = dict(server.heard), 1
        assert len(server.opened) == len(KINDS)
        assert await blind_in(clock, watches, seconds=400) == []
        anew = {kind: when for when, kind in reversed(server.opened) if when > 100.0}
        assert set(anew) == set(KINDS)
        rest = Backoff().first * 2
        for kind, when in anew.items():
            silent = BEATS_SILENT if kind == "leases" else SILENCE
            assert silent <= when - before[kind] <= silent + rest, kind
        assert SILENCE + rest < STALE


async def test_without_an_api_server_the_picture_is_believed_for_so_long_and_no_longer() -> None:
    """What was heard last is too old after 150 s; once the server is back, all is known within half a minute."""
    async with watching() as (clock, server, watches):
        await clock.advance(130.0)
        assert not watches.why_deaf()
        last, server.away = min(server.heard.values()), True
        last_of_all = server.heard["leases"]
        blind = await blind_in(clock, watches, seconds=400)
        assert STALE < blind[0] - last <= STALE + 1.0
        assert blind[-1] == clock.monotonic()
        # What is said of it in the meantime is how long it is so.
        assert watches.why_deaf() == f"the API server has not been heard for {clock.monotonic() - last_of_all:.0f} s"
        server.away = False
        back = clock.monotonic()
        after = await blind_in(clock, watches, seconds=60)
        assert not after or after[-1] - back <= Backoff().longest + 1.0
