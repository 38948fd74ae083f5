"""The page on a played cluster: served on loopback as the centre serves it, without an API server."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.clock import SystemClock
from aliquot_kube.errors import ForbiddenError
from aliquot_kube.transport import Question, Response
from aliquot_scheduler.certificates.settings import CENTRE
from aliquot_scheduler.page.hub import Hub
from aliquot_scheduler.page.looking import Seen
from aliquot_scheduler.page.passing import Passing
from aliquot_scheduler.page.reviews import Reviewer
from aliquot_scheduler.page.routes import PageRoutes
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.page.usage import Usage
from support.queue_stage import Stage

LOOPBACK = "127.0.0.1"


class ToldUsage:
    """What is used, as a test says."""

    def __init__(self) -> None:
        self.usage = Usage()

    def latest(self) -> Usage:
        """That."""
        return self.usage


class ScriptedReviews:
    """An API server that knows some tokens: whose they are, and what those may list."""

    def __init__(self, users: Mapping[str, tuple[str, Sequence[str]]]) -> None:
        self.users = users
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.fails = False

    async def request(self, question: Question) -> Response:
        """Answer a review."""
        body = msgspec.json.decode(question.body or b"{}")
        self.asked.append((body["kind"], body["spec"]))
        if self.fails:
            raise ForbiddenError("no", where=question.where)
        return Response(status=201, headers={}, body=msgspec.json.encode({"status": self._status(body)}))

    def stream(self, question: Question) -> Any:
        """Nobody asks for one."""
        raise NotImplementedError(question.where)

    def _status(self, review: Mapping[str, Any]) -> dict[str, Any]:
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            name, _ = self.users.get(spec["token"], ("", ()))
            return {"authenticated": bool(name), "user": {"username": name, "groups": ["g"]}}
        may = dict(self.users.values())
        attributes = spec["resourceAttributes"]
        return {"allowed": attributes["verb"] == "list" and attributes["resource"] in may[spec["user"]]}


class PageStage(Stage):
    """A cluster, and somebody who looks at it."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        # As a mirror has them.
        self.by_key: dict[str, Pod] = {}
        super().__init__(*arguments, **more)
        self.told = ToldUsage()
        self.leads = True
        self.paused = self.deaf = ""
        self.evicted = Counter[str]()

    def seen(self, *, clock: Clock | None = None) -> Seen | None:
        """What the leader knows now."""
        if not self.leads:
            return None
        return Seen(
            picture=self.picture,
            turns=self.queues,
            pods=self.by_key,
            paused=self.paused,
            deaf=self.deaf,
            evicted=dict(self.evicted),
            now=self.now,
            wall=(clock or SystemClock()).wall(),
        )

    def see(self, pod: Pod) -> None:
        """The watch tells of a pod."""
        if (was := self.pods.get(pod.metadata.uid)) is not None:
            self.by_key.pop(was.key, None)
        self.by_key[pod.key] = pod
        super().see(pod)

    def gone(self, uid: str) -> None:
        """A pod is deleted."""
        self.by_key.pop(self.pods[uid].key, None)
        super().gone(uid)

    def change(self, uid: str, change: Callable[[Pod], Pod]) -> None:
        """A pod becomes another."""
        self.see(change(self.pods[uid]))


class Served:
    """Where the page is."""

    def __init__(self, *, url: str, hub: Hub, looking: asyncio.Future[None]) -> None:
        self.url = url
        self.hub = hub
        # The hub at work.
        self.looking = looking


@asynccontextmanager
async def page_served(
    stage: PageStage,
    *,
    settings: PageSettings | None = None,
    clock: Clock | None = None,
    reviews: ScriptedReviews | None = None,
    tls: ssl.SSLContext | None = None,
    leader: Callable[[], str | None] = lambda: None,
    client: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    is_replica: Callable[[web.Request], bool] = lambda _: False,
    address: str = LOOPBACK,
) -> AsyncIterator[Served]:
    """Serve the page of this stage until the end of the block."""
    clock, settings = clock or SystemClock(), settings or PageSettings(every=0.05, sample=0.2)
    hub = Hub(sight=lambda: stage.seen(clock=clock), usage=stage.told, clock=clock, names=Names(), settings=settings)
    passing = Passing(identity="me", leader_address=leader, tls=client, server_name=CENTRE)
    routes = PageRoutes(
        hub=hub,
        reviewer=Reviewer(transport=reviews or ScriptedReviews({}), clock=clock),
        passing=passing,
        leads=lambda: stage.leads,
        is_replica=is_replica,
        hosts=settings.hosts,
        readers=settings.readers,
    )
    app = web.Application()
    app.add_routes(routes.routes())
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(passing.close)
        await web.TCPSite(runner, address, 0, ssl_context=tls).start()
        looking = asyncio.ensure_future(hub.run())
        stack.push_async_callback(_ended, looking)
        port = runner.addresses[0][1]
        yield Served(url=f"{'https' if tls else 'http'}://{address}:{port}", hub=hub, looking=looking)


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def events(session: aiohttp.ClientSession, url: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """What a reader is told: serials and changes."""
    async with session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        left = b""
        async for chunk in answer.content.iter_any():
            *whole, left = (left + chunk).split(b"\n\n")
            for event in whole:
                if found := re.fullmatch(rb"id: (\S+)\ndata: (.*)", event):
                    yield found[1].decode(), msgspec.json.decode(found[2])


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that nobody tells of."""
    async with asyncio.timeout(60):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


async def get(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    """Ask."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.get(url, headers=named, allow_redirects=False) as answer:
        return answer.status, await answer.text()
