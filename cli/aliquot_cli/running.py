"""How a process of ours runs and ends: a signal asks it to stop, a second one does not wait."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable

from aliquot_core.logs import LogSettings, configure_logging
from aliquot_core.settings import Sources

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def start_logging(sources: Sources) -> None:
    """Log as the settings say, from the first line on."""
    configure_logging(sources.resolve("log", LogSettings).value)


def run_until_stopped(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `serve` until it ends by itself or, after SIGTERM or SIGINT has set its event, has left cleanly."""
    # What is imported by now lives as long as the process: the collector need not look at it again and again.
    gc.freeze()
    asyncio.run(_run(serve))


def forget_what_ended() -> None:
    """Let go of what was frozen and is over: whole parts of us hang on themselves, and only the collector ends them.

    Nothing is frozen anew: what is being closed just now (streams, say) is to be collected too, a little later.
    """
    gc.unfreeze()
    gc.collect()


async def _run(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop() -> None:
        stop.set()
        # Whoever asks twice does not want to wait: the second signal ends the process as it would any other.
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, ask_to_stop)
    await serve(stop)


async def _nothing() -> None:
    """No farewell."""


async def until(
    stop: asyncio.Event, work: Awaitable[None], *, farewell: Callable[[], Awaitable[None]] = _nothing
) -> None:
    """Do the work until it ends or `stop` is set, and say farewell while it still goes on; its error is raised."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    leaving: asyncio.Future[None] | None = None
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            leaving = asyncio.ensure_future(farewell())
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        tasks = [task for task in (working, stopping, leaving) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
