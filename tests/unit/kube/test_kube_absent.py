"""A resource that is installed later: its mirror is empty until then, and follows it from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aliquot_core.names import Names
from aliquot_core.objects import Queue
from aliquot_kube.mirror import Mirror
from aliquot_kube.resources import queues_of
from aliquot_kube.transport import Question
from support.clocks import VirtualClock
from support.fake_api import FakeApi

QUEUES = queues_of(Names())


async def _silent(_: Question) -> AsyncIterator[bytes]:
    await asyncio.get_running_loop().create_future()
    yield b""


def mirror(api: FakeApi, clock: VirtualClock, *, may_be_absent: bool) -> Mirror[Queue]:
    """A mirror of queues."""
    return Mirror(transport=api, clock=clock, random=lambda: 0.5, resource=QUEUES, may_be_absent=may_be_absent)


async def test_a_resource_that_is_not_installed_has_no_objects_until_it_is() -> None:
    """Whoever waits for the mirror goes on at once, and hears of what is made later."""
    api, clock = FakeApi(), VirtualClock()
    api.streams.append(_silent)
    found = mirror(api, clock, may_be_absent=True)
    task = asyncio.ensure_future(found.run())
    try:
        await found.synced()
        assert not found.objects
        item = {"metadata": {"name": "a", "uid": "1", "resourceVersion": "7"}, "spec": {"priority": 1}}
        api.put(QUEUES.collection(), {"items": [item]})
        async with asyncio.timeout(60):
            while "a" not in found.objects:
                await clock.advance(1.0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert QUEUES.path(name="a") == "/apis/aliquot.dev/v1alpha1/queues/a"


async def test_elsewhere_its_absence_is_a_failure() -> None:
    """A mirror of pods that found none because of a wrong path would free every slice."""
    api, clock = FakeApi(), VirtualClock()
    found = mirror(api, clock, may_be_absent=False)
    task = asyncio.ensure_future(found.run())
    await clock.advance(0.0)
    freshness = found.freshness()
    assert (freshness.failures, freshness.synced) == (1, False)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
