"""Waiting with a deadline by the clock that was handed in."""

from __future__ import annotations

import asyncio
from typing import Any

from aliquot_core.clock import Clock


async def settled(*, clock: Clock, work: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for the work at most so long and say whether it is done; it is left running if it is not."""
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({work, sleeper}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
    return work.done()
