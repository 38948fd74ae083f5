"""Waiting for the plugins of an earlier kubelet to register again.

A pod that asks for devices before its plugin is back fails for good: of three restarts of `aliquot up` on a busy
machine one lost this race by 0.6 s when plugins had a fixed time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set as AbstractSet

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
        self._until = 0.0

    def begin(self) -> None:
        """From now on patience runs out."""
        self._until = self._clock.monotonic() + self._patience

    def awaited(self, resources: AbstractSet[str]) -> frozenset[str]:
        """Those of these resources whose plugins are to be waited for."""
        return self._table.awaited() & resources if self._left else frozenset()

    def look(self) -> None:
        """A plugin has told its devices."""
        self._news.set()

    async def news(self) -> None:
        """Until a plugin has told its devices, or patience ends."""
        await sleep_unless(clock=self._clock, seconds=self._left, woken=self._news)
        if not self._left:
            missing = sorted(self._table.awaited())
            log.warning("plugins did not come back", extra={"resources": missing, "waited": self._patience})

    @property
    def _left(self) -> float:
        return max(0.0, self._until - self._clock.monotonic())
