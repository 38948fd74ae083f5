"""Waiting on an injected clock, unless something happens first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aliquot_core.clock import Clock

T = TypeVar("T")


async def settled(work: asyncio.Future[Any], *, clock: Clock, seconds: float) -> bool:
    """Wait for the work, at most so long; tell whether it is done. Too late, it goes on: others may wait for it too."""
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, sleeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
    return work.done()


async def sleep_unless(*, clock: Clock, seconds: float | None, woken: asyncio.Event) -> None:
    """Sleep so long, or until woken; None waits for that alone. The event is clear afterwards."""
    if seconds is None:
        await woken.wait()
    else:
        waiting = asyncio.ensure_future(woken.wait())
        try:
            await settled(waiting, clock=clock, seconds=seconds)
        finally:
            waiting.cancel()
    woken.clear()


async def within(work: Coroutine[Any, Any, T], *, clock: Clock, seconds: float) -> T:
    """Do something that may take so long and no longer; `TimeoutError` if it was cut off."""
    doing = asyncio.ensure_future(work)
    try:
        if await settled(doing, clock=clock, seconds=seconds):
            return doing.result()
        raise TimeoutError(f"no answer within {seconds:g} s")
    finally:
        doing.cancel()
        # Whatever it still has to say when it is cut off, nobody waits for.
        await asyncio.gather(doing, return_exceptions=True)
