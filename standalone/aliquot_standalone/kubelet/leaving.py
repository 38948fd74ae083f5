"""Ending all containers of a node whose kubelet runs no more, so that the next kubelet learns how each ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any

from aliquot_core.clock import Clock
from aliquot_standalone.kubelet.containers import Runtime, marked_at
from aliquot_standalone.kubelet.groups import Groups
from aliquot_standalone.kubelet.lifecycle import Process, Running
from aliquot_standalone.kubelet.memory import Memories


async def end_containers(
    *, place: str, memories: Memories, runtime: Runtime, clock: Clock, grace: float, groups: Groups | None = None
) -> None:
    """SIGTERM to all, SIGKILL to whoever is left when the grace is over.

    Leaders and strays alike bear the place's mark or are in its groups, also those of a start that nobody remembers.
    """
    waiting = [
        asyncio.ensure_future(runtime.wait(process, memories.exit_file(uid, container, start)))
        for uid, container, start, process in _living(memories)
    ]
    for _, _, _, process in _living(memories):
        runtime.signal(process, signal.SIGTERM)
    over: asyncio.Future[Any] = asyncio.ensure_future(clock.sleep(grace))
    gone: asyncio.Future[Any] = asyncio.gather(*waiting)
    await asyncio.wait([gone, over], return_when=asyncio.FIRST_COMPLETED)
    over.cancel()
    while strays := left_at(place, groups=groups):
        for stray in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, signal.SIGKILL)
        await clock.sleep(0.01)
    await gone
    if groups:
        groups.close()


def left_at(place: str, *, groups: Groups | None) -> set[int]:
    """All processes of a node's containers, by mark or by group."""
    return {*marked_at(place), *(groups.everybody() if groups else ())}


def _living(memories: Memories) -> list[tuple[str, str, int, Process]]:
    return [
        (uid, name, life.starts - 1, life.state.process)
        for uid, memory in memories.read_all().items()
        for name, life in memory.lives.items()
        if isinstance(life.state, Running)
    ]
