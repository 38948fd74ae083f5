"""Whoever waits for word on a pod hears it, however many wait, and whoever has left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from aliquot_scheduler.centre.tidings import Tidings
from support.centre import asks
from support.clocks import VirtualClock

POD, OTHER = asks("p", 10, 1000), asks("q", 10, 1000)


class Stage:
    """Who waits, by name, and who has come back after how long."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.tidings = Tidings(clock=self.clock)
        self.back: dict[str, float] = {}
        self.waiting: dict[str, asyncio.Task[None]] = {}

    async def wait(self, name: str, *, seconds: float, after: Awaitable[object] | None = None) -> None:
        """Begin to wait for word on the pod."""

        async def done() -> None:
            await self.tidings.of(POD.metadata.uid, seconds=seconds, after=after)
            self.back[name] = self.clock.monotonic()

        self.waiting[name] = asyncio.create_task(done())
        await self.clock.advance(0.0)


@pytest.mark.parametrize("leaves", ["by its limit", "cancelled", "by word"])
async def test_who_leaves_takes_nobody_s_word_along(leaves: str) -> None:
    """Whoever waits on, or comes to wait then, hears of the pod at that instant."""
    stage = Stage()
    await stage.wait("first", seconds=1.0)
    if leaves != "by word":
        await stage.wait("second", seconds=60.0)
    if leaves == "cancelled":
        stage.waiting["first"].cancel()
    if leaves == "by word":
        stage.tidings.told(POD)
        await stage.clock.advance(0.0)
        await stage.wait("second", seconds=60.0)
    await stage.clock.advance(2.0)
    await stage.wait("third", seconds=60.0)
    assert stage.back.keys() == ({"first"} if leaves != "cancelled" else set())
    stage.tidings.told(POD)
    await stage.clock.advance(0.0)
    assert {name: at for name, at in stage.back.items() if name != "first"} == {"second": 2.0, "third": 2.0}


async def test_word_on_another_pod_wakes_nobody() -> None:
    """And without any the wait ends by its limit."""
    stage = Stage()
    await stage.wait("first", seconds=5.0)
    stage.tidings.told(OTHER)
    await stage.clock.advance(4.0)
    assert stage.back == {}
    await stage.clock.advance(1.0)
    assert stage.back == {"first": 5.0}


async def test_word_that_comes_before_the_answer_is_heard() -> None:
    """The watch may be faster than what it tells of; a failure of that is not kept from who waits, nor from others."""
    stage, answer = Stage(), asyncio.Event()
    await stage.wait("fast", seconds=60.0, after=answer.wait())
    stage.tidings.told(POD)
    await stage.clock.advance(0.0)
    assert stage.back == {}
    answer.set()
    await stage.clock.advance(0.0)
    assert stage.back == {"fast": 0.0}

    async def failing() -> None:
        raise ConnectionError

    await stage.wait("second", seconds=60.0)
    with pytest.raises(ConnectionError):
        await stage.tidings.of(POD.metadata.uid, seconds=60.0, after=failing())
    stage.tidings.told(POD)
    await stage.clock.advance(0.0)
    assert stage.back == {"fast": 0.0, "second": 0.0}
