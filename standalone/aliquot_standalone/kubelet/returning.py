"""Waiting for the plugins of an earlier kubelet to register again.

A pod that asks for devices before its plugin is back fails for good: of three restarts of `aliquot up` on a busy
machine one lost this race by 0.6 s when plugins had a fixed time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from aliquot_core.clock import Clock
from aliquot_kube.pacing import sleep_unless
from aliquot_standalone.kubelet.devices import DeviceTable

log = logging.getLogger(__name__)


class Returning:
    """Who has yet to come back, and how long that is waited for."""

    def __init__(self, *, table: DeviceTable, clock: Clock, patience: float) -> None:
        self._table = table
        self._clock = clock
        self._patience = patience
        self._news = asyncio.Event()

    def awaited(self) -> frozenset[str]:
        """Resources whose plugins are not back."""
        return self._table.awaited()

    def look(self) -> None:
        """A plugin has told its devices."""
        self._news.set()

    async def wait(self, resources: Collection[str]) -> None:
        """Until the plugins of all these are back, or patience ends."""
        until = self._clock.monotonic() + self._patience
        while missing := self.awaited().intersection(resources):
            left = until - self._clock.monotonic()
            if left <= 0:
                log.warning("plugins did not come back", extra={"resources": sorted(missing), "waited": self._patience})
                return
            await sleep_unless(clock=self._clock, seconds=left, woken=self._news)
