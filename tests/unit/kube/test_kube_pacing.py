"""Waiting for work, an event or the clock, whichever is first."""

from __future__ import annotations

import asyncio

import pytest

from aliquot_kube.pacing import settled, sleep_unless, within
from support.clocks import VirtualClock


async def test_work_that_is_late_goes_on() -> None:
    """The deadline ends the wait, not the work, and a later wait may see it end."""
    clock, work = VirtualClock(), asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(settled(work, clock=clock, seconds=5.0))
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.1)
    assert waiting.result() is False
    assert not work.done()
    again = asyncio.ensure_future(settled(work, clock=clock, seconds=5.0))
    await clock.advance(1.0)
    work.set_result(None)
    assert await again is True


async def test_work_that_is_done_needs_no_time() -> None:
    """Even with no time left, what is done counts."""
    work = asyncio.get_running_loop().create_future()
    work.set_result(None)
    assert await settled(work, clock=VirtualClock(), seconds=0.0) is True


@pytest.mark.parametrize("seconds", [60.0, None])
async def test_an_event_wakes_and_is_clear_again(seconds: float | None) -> None:
    """Long before the time, or where there is none; the next sleep is a whole one."""
    clock, woken = VirtualClock(), asyncio.Event()
    sleeping = asyncio.ensure_future(sleep_unless(clock=clock, seconds=seconds, woken=woken))
    await clock.advance(1.0)
    assert not sleeping.done()
    woken.set()
    await sleeping
    assert not woken.is_set()


async def test_a_sleep_ends_by_itself() -> None:
    """Nobody has to wake it, and nobody waits on for the event afterwards."""
    clock, woken = VirtualClock(), asyncio.Event()
    sleeping = asyncio.ensure_future(sleep_unless(clock=clock, seconds=2.0, woken=woken))
    await clock.advance(2.0)
    assert sleeping.done()
    await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()


async def test_work_that_takes_too_long_is_cut_off() -> None:
    """It has cleaned up, however long that takes, when the error is raised."""
    clock, ended = VirtualClock(), asyncio.Event()

    async def slow() -> None:
        try:
            await clock.sleep(10.0)
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            ended.set()

    doing = asyncio.ensure_future(within(slow(), clock=clock, seconds=3.0))
    await clock.advance(3.0)
    with pytest.raises(TimeoutError, match="within 3 s"):
        await doing
    assert ended.is_set()


async def test_work_in_time_gives_its_answer() -> None:
    """Or its own error."""

    async def fails() -> None:
        raise ValueError("mine")

    assert await within(asyncio.sleep(0, "answer"), clock=VirtualClock(), seconds=3.0) == "answer"
    with pytest.raises(ValueError, match="mine"):
        await within(fails(), clock=VirtualClock(), seconds=3.0)
