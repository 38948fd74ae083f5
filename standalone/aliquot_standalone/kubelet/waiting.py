"""Waiting for an event or a time, whichever comes first, on the clock that was handed in."""

from __future__ import annotations

import asyncio

from aliquot_core.clock import Clock


async def event_or_time(event: asyncio.Event, *, clock: Clock, seconds: float | None) -> None:
    """Return when the event is set or so many seconds have passed; None waits for the event alone."""
    if seconds is None:
        await event.wait()
        return
    happened = asyncio.ensure_future(event.wait())
    passed = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({happened, passed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        happened.cancel()
        passed.cancel()
