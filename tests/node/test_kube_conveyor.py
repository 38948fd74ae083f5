"""The belt between a reading thread and the loop, and the credentials that threads share."""

from __future__ import annotations

import asyncio
import threading

import pytest
from kubernetes.client import Configuration

from aliquot_kube.conveyor import Conveyor
from aliquot_kube.credentials import Credentials
from aliquot_kube.transport import Question, lines_from
from support.http_api import LONG_S


async def test_a_belt_that_is_never_empty_leaves_the_loop_to_others() -> None:
    """However fast lines come, other tasks get a turn between what is taken from the belt."""
    conveyor = Conveyor(asyncio.get_running_loop())
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    conveyor.put(b"0\n")
    taken = 0
    async for _ in lines_from(conveyor, Question(method="GET", path="/")):
        taken += 1
        if taken == 1_000:
            break
        conveyor.put(b"more\n")
    counting.cancel()
    assert turns >= 900


async def test_a_full_belt_holds_the_thread_until_it_is_taken_or_closed() -> None:
    """The thread goes on when the loop has taken, and is let off when the loop wants no more."""
    conveyor = Conveyor(asyncio.get_running_loop(), most_bytes=4)
    goes_on: list[bool] = []

    def work() -> None:
        goes_on.extend(conveyor.put(chunk) for chunk in [b"full", b"more", b"last", b"never"])

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert await conveyor.take() == [b"full"]
    assert await conveyor.take() == [b"more"]
    conveyor.close()
    await asyncio.to_thread(thread.join, LONG_S)
    assert not thread.is_alive()
    assert goes_on[:2] == [True, True]
    assert goes_on[-1] is False


async def test_what_lies_on_the_belt_comes_before_the_trouble_that_ended_it() -> None:
    """An error is raised only when all that came before has been taken."""
    conveyor = Conveyor(asyncio.get_running_loop())
    conveyor.put(b"last words")
    conveyor.finish(ConnectionError("gone"))
    assert await conveyor.take() == [b"last words"]
    with pytest.raises(ConnectionError):
        await conveyor.take()


def test_threads_that_were_unknown_together_load_the_credentials_once() -> None:
    """Of several threads that got a 401 with the same credentials only the first loads new ones."""
    loads = 0

    def load() -> Configuration:
        nonlocal loads
        loads += 1
        return Configuration(host="http://127.0.0.1:1")

    credentials = Credentials(load)
    access = credentials.access()
    credentials.distrust(access)
    credentials.distrust(access)
    assert loads == 2
