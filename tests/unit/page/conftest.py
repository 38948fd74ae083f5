"""What tests of the page share: a cluster, and somebody who calls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from support.page_stage import PageStage
from support.queue_stage import queue


@pytest.fixture
def stage() -> PageStage:
    """A node with two GPUs and a pod."""
    stage = PageStage({"red": queue()}, nodes=(2,))
    stage.submit("u0", 60, 20_000, queue="red")
    stage.run()
    return stage


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody who calls."""
    # Cookies of an address without a name too, as a browser keeps them.
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session
