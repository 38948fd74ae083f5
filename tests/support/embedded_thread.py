"""The embedded API server in a thread of its own, as a real one is a process of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.embedded import serving
from support.http_api import LONG_S


@contextmanager
def embedded_server(**settings: Any) -> Iterator[str]:
    """Serve for as long as the block runs; gives the URL."""
    background = _Background(settings)
    url = background.start()
    try:
        yield url
    finally:
        background.stop()


class _Background:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._url = ""
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        # A runner ends what is left of the loop's tasks before it closes it: connections that were just made, too.
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> str:
        self._thread.start()
        assert self._ready.wait(LONG_S)
        return self._url

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        async with serving(clock=SystemClock(), **self._settings) as server:
            self._url = server.url
            self._ready.set()
            await self._stop.wait()
