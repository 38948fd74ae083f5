"""The server under test here is the embedded one; tests/cluster puts a real one in its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.embedded import serving
from conformance.contracts.space import Space
from support.http_api import LONG_S, HttpApi


class _Background:
    """The embedded server in a thread of its own, as a real one is a process of its own."""

    def __init__(self) -> None:
        self.url = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> str:
        self._thread.start()
        assert self._ready.wait(LONG_S)
        return self.url

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(LONG_S)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with serving(clock=SystemClock()) as server:
            self.url = server.url
            self._ready.set()
            await self._stop.wait()


@pytest.fixture(scope="session")
def api_under_test() -> Iterator[HttpApi]:
    """Give the server that the contracts are held against."""
    background = _Background()
    yield HttpApi(url=background.start())
    background.stop()


@pytest.fixture
def space(api_under_test: HttpApi) -> Iterator[Space]:
    """Give the test a namespace of its own."""
    made = Space.make(api_under_test)
    yield made
    api_under_test.delete(made.path)
