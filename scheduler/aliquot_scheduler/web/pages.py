"""What the centre says of itself in plain HTTP: `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# What is missing, a sentence each; nothing where all is well.
Probe = Callable[[], Sequence[str]]
Handler = Callable[[web.Request], Awaitable[web.Response]]


class StatusPages:
    """Three pages; all are put together on the loop, since what they tell of lives there."""

    def __init__(self, *, registry: CollectorRegistry, alive: Probe, ready: Probe) -> None:
        self._registry = registry
        self._alive = alive
        self._ready = ready
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics")
        # Several scrapers at once get one page.
        self._page: asyncio.Future[bytes] | None = None

    def routes(self) -> list[web.RouteDef]:
        """What an application adds to serve them."""
        return [
            web.get("/metrics", self._metrics),
            web.get("/healthz", _probed(self._alive)),
            web.get("/readyz", _probed(self._ready)),
        ]

    def close(self) -> None:
        """Let the writer go."""
        self._writer.shutdown(wait=False)

    async def _metrics(self, _: web.Request) -> web.Response:
        if self._page is None or self._page.done():
            collected = _Collected(list(self._registry.collect()))
            # Writing takes longer than collecting, and needs nothing of the loop's.
            self._page = asyncio.get_running_loop().run_in_executor(self._writer, generate_latest, collected)
        page = await asyncio.shield(self._page)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _probed(probe: Probe) -> Handler:
    async def handle(_: web.Request) -> web.Response:
        missing = probe()
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        return web.Response(text="".join(f"{line}\n" for line in missing) or "ok\n", status=status)

    return handle
