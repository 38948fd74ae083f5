"""How late this machine wakes who sleeps: what a busy one adds to each time that is measured on it."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

_STEP = 0.05


class Lateness:
    """Measured as long as the block lasts."""

    def __init__(self) -> None:
        # Seconds, of all the times that somebody slept.
        self.worst = 0.0
        self._done = threading.Event()
        self._sleeper = threading.Thread(target=self._sleep, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._sleeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self._done.set()
        self._sleeper.join()

    def _sleep(self) -> None:
        slept = time.monotonic()
        while not self._done.wait(_STEP):
            now = time.monotonic()
            self.worst, slept = max(self.worst, now - slept - _STEP), now
