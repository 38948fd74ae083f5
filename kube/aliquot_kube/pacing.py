"""Waiting on an injected clock, unless something happens first; and times as Kubernetes writes them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from aliquot_core.clock import Clock


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


def micro_time(wall: float) -> str:
    """Spell an instant as Kubernetes' MicroTime."""
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_time(wall: float) -> str:
    """Spell an instant as Kubernetes' Time, which has whole seconds."""
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
