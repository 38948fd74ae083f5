"""Queues that change together are read once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest

from aliquot_core.objects import ObjectMeta, Queue
from aliquot_kube.changes import Added, Synced
from aliquot_scheduler.centre.replanter import Replanter
from support.clocks import VirtualClock
from support.reigns import known_reign


@asynccontextmanager
async def running(replanter: Replanter) -> AsyncIterator[None]:
    """While it runs."""
    task = asyncio.create_task(replanter.run())
    try:
        yield
    finally:
        task.cancel()


async def test_what_changes_while_everybody_is_put_down_is_read_once() -> None:
    """And others have as much time as that took before it is done again."""
    clock, began = VirtualClock(), list[float]()

    def read() -> None:
        began.append(clock.monotonic())
        clock._now += 2.0
        if len(began) == 1:
            for _ in range(50):
                replanter.changed()

    replanter = Replanter(read=read, clock=clock)
    async with running(replanter):
        replanter.changed()
        replanter.changed()
        await clock.advance(0.0)
        assert began == [0.0]
        await clock.advance(3.9 - clock.monotonic())
        assert began == [0.0]
        await clock.advance(0.2)
        assert began == [0.0, 4.0]
        await clock.advance(10.0)
        assert began == [0.0, 4.0]


async def test_queues_that_are_created_together_are_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is known after the next turn of the loop; all there are at the beginning are known at once."""
    reign, seen = known_reign(), Mock()
    watch = reign._watches.queues
    monkeypatch.setattr(reign.turns, "queues_seen", seen)
    watch._tell([Synced(resource_version="1")])
    assert seen.call_count == 1
    monkeypatch.setattr(watch, "freshness", lambda: Mock(synced=True))
    made = [Queue(metadata=ObjectMeta(name=f"q{number}")) for number in range(100)]
    async with running(reign.replanter):
        for queue in made:
            watch._tell([Added(new=queue)])
        assert seen.call_count == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert seen.call_count == 2
