"""Waiting on an injected clock, unless something happens first; and times as Kubernetes writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from aliquot_core.clock import Clock

T = TypeVar("T")


async def sleep_unless(*, clock: Clock, seconds: float, woken: asyncio.Event) -> None:
    """Sleep so long, or until woken; the event is clear afterwards."""
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    waiting = asyncio.ensure_future(woken.wait())
    try:
        await asyncio.wait([sleeping, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        waiting.cancel()
    woken.clear()


async def within(work: Coroutine[Any, Any, T], *, clock: Clock, seconds: float) -> T:
    """Do something that may take so long and no longer; `TimeoutError` if it was cut off."""
    doing = asyncio.ensure_future(work)
    tired = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait([doing, tired], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise TimeoutError(f"no answer within {seconds:g} s")
    finally:
        doing.cancel()
        tired.cancel()
        # Whatever it still has to say when it is cut off, nobody waits for.
        await asyncio.gather(doing, return_exceptions=True)


def micro_time(wall: float) -> str:
    """Spell an instant as Kubernetes' MicroTime."""
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_time(wall: float) -> str:
    """Spell an instant as Kubernetes' Time, which has whole seconds."""
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
