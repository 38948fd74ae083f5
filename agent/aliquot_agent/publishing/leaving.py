"""How an agent leaves that was told to stop: announced, and not before pods on their way have been admitted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aliquot_agent.signal import Signal
from aliquot_agent.starting.decision import Known
from aliquot_core.clock import Clock
from aliquot_core.names import Names

log = logging.getLogger(__name__)


async def leave(
    *,
    patience: float,
    clock: Clock,
    names: Names,
    announce: Callable[[], Awaitable[None]],
    known: Callable[[], Awaitable[Known]],
    changed: Signal,
) -> None:
    """Say that we leave, and give pods that were bound before that was known the time to be admitted."""
    deadline = clock.monotonic() + patience
    try:
        async with asyncio.timeout(patience):
            await announce()
    except TimeoutError:
        log.warning("leaving unannounced: the API server did not take our lease")
    while (waiting := on_their_way(await known(), names=names)) and clock.monotonic() < deadline:
        log.info("pods are still to be admitted", extra={"pods": waiting})
        await changed.wait(clock=clock, at_most=0.5)


def on_their_way(known: Known, *, names: Names) -> list[str]:
    """Pods with a grant that the kubelet has not admitted yet."""
    recorded = {entry.uid for entry in known.recorded or ()}
    return [
        pod.key
        for uid, pod in known.pods.items()
        if uid not in recorded and not pod.ended and names.grant in pod.metadata.annotations
    ]
