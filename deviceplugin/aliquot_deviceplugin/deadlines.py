"""Waiting no longer than so long, by the clock that was handed in."""

from __future__ import annotations

import asyncio
from typing import Any

from aliquot_core.clock import Clock


async def done_within(future: asyncio.Future[Any], *, seconds: float, clock: Clock) -> bool:
    """Wait for a future, at most so long; tell whether it is done. Too late, it goes on: others may wait for it too."""
    if future.done() or seconds <= 0:
        return future.done()
    tired = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({future, tired}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        tired.cancel()
    return future.done()
