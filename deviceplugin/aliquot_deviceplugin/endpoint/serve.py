"""The endpoint as a process of its own: runs until it is told to leave."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from aliquot_core.clock import Clock
from aliquot_deviceplugin.endpoint.process import run_endpoint
from aliquot_deviceplugin.endpoint.settings import EndpointSettings


def serve(settings: EndpointSettings, *, clock: Clock, chance: Callable[[], float]) -> None:
    """Serve until SIGTERM or SIGINT."""
    asyncio.run(_until_signalled(settings, clock=clock, chance=chance))


async def _until_signalled(settings: EndpointSettings, *, clock: Clock, chance: Callable[[], float]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_endpoint(settings, clock=clock, stop=stop, chance=chance)
