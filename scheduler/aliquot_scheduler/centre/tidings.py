"""Waiting until the watch tells of a pod: kube-scheduler has heard of it before us, or we have just written on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from aliquot_core.clock import Clock
from aliquot_core.objects import Pod
from aliquot_kube.pacing import sleep_unless


class Tidings:
    """Who waits for word on a pod."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        # Each has an ear of its own: whoever leaves first takes nobody else's along.
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def told(self, pod: Pod) -> None:
        """The watch has told of a pod."""
        for waiting in self._waiting.get(pod.metadata.uid, ()):
            waiting.set()

    async def of(self, uid: str, *, seconds: float, after: Awaitable[object] | None = None) -> None:
        """Wait for the next word on a pod, so long at most; `after` is what it is to tell of, and is done first."""
        waiting, together = asyncio.Event(), self._waiting.setdefault(uid, set())
        together.add(waiting)
        try:
            if after is not None:
                # The watch may be faster than the answer.
                await after
            await sleep_unless(clock=self._clock, seconds=seconds, woken=waiting)
        finally:
            together.remove(waiting)
            if not together:
                del self._waiting[uid]
