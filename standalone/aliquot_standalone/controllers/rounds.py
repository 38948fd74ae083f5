"""Sees to one object after another, each when it is due: the shell round `worklist`, the same for every controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aliquot_core.clock import Clock
from aliquot_kube.errors import ApiError, ConflictError, NotFoundError
from aliquot_kube.pacing import sleep_unless
from aliquot_standalone.controllers.worklist import LEAST_WAIT, Worklist

log = logging.getLogger(__name__)


class Rounds:
    """One controller's rounds."""

    def __init__(self, *, clock: Clock, see_to: Callable[[str], Awaitable[None]]) -> None:
        """`see_to` does what the object of a key needs; what fails by the API server is tried again."""
        self._clock = clock
        self._see_to = see_to
        self._work = Worklist()
        self._news = asyncio.Event()

    def mark(self, key: str) -> None:
        """Something is new about it."""
        self._work.mark(key, now=self._clock.monotonic())
        self._news.set()

    def again(self, key: str, *, at: float | None) -> None:
        """Look at it at that instant of the wall clock, if at any."""
        if at is not None:
            wait = max(at - self._clock.wall(), LEAST_WAIT)
            self._work.later(key, at=self._clock.monotonic() + wait)

    def forget(self, key: str) -> None:
        """It is gone."""
        self._work.forget(key)

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            key = self._work.next(now=self._clock.monotonic())
            if key is None:
                await self._pause()
            else:
                await self._look_at(key)

    async def _pause(self) -> None:
        at = self._work.wake_at()
        wait = None if at is None else max(at - self._clock.monotonic(), 0.0)
        await sleep_unless(clock=self._clock, seconds=wait, woken=self._news)

    async def _look_at(self, key: str) -> None:
        try:
            await self._see_to(key)
        except (ConflictError, NotFoundError):
            # Somebody was faster; the watch tells.
            self._work.failed(key, now=self._clock.monotonic())
        except ApiError as error:
            log.warning("put off", extra={"object": key, "error": str(error)})
            self._work.failed(key, now=self._clock.monotonic())
        else:
            self._work.went_well(key)
