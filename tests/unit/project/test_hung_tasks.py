"""What a test that ran out of time was waiting for is told."""

from __future__ import annotations

import asyncio

from support.hung_tasks import tasks_at_work


async def never_told(news: asyncio.Event) -> None:
    """Wait for what nobody sets."""
    await news.wait()


async def asks(news: asyncio.Event) -> None:
    """Wait for somebody who waits."""
    await never_told(news)


async def test_every_await_of_a_task_that_waits_is_told() -> None:
    """From the task's name down to what it waits for, in this order; who is done is left out."""
    news = asyncio.Event()
    done = asyncio.create_task(asyncio.sleep(0), name="quick")
    waiting = asyncio.create_task(asks(news), name="patient")
    await done
    told = tasks_at_work()
    news.set()
    await waiting
    _, found, rest = told.partition("patient\n")
    assert found
    assert "quick" not in told
    places = [rest.index(name) for name in ("in asks\n", "in never_told\n", "in Event.wait\n", "<Future ")]
    assert places == sorted(places)


def test_tasks_of_a_loop_that_was_broken_into_are_told() -> None:
    """As a time-out does it: the loop runs no more, its tasks are still there."""
    loop = asyncio.new_event_loop()

    async def broken_into() -> None:
        asyncio.get_running_loop().call_soon(loop.stop)
        await never_told(asyncio.Event())

    task = loop.create_task(broken_into(), name="cut short")
    loop.run_forever()
    told = tasks_at_work()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert "cut short\n" in told
    assert "in never_told\n" in told
