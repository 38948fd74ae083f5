"""How many pods may be moved (`queues.moves_per_hour`), for one that waits or so that something stands empty."""

from __future__ import annotations

_HOUR = 3600.0


class Allowance:
    """How many may be moved now."""

    def __init__(self, *, per_hour: int) -> None:
        self._per_hour = per_hour
        self._left = 0.0
        self._seen: float | None = None

    def at(self, now: float) -> int:
        """At this instant."""
        grown = 0.0 if self._seen is None else (now - self._seen) * self._per_hour / _HOUR
        self._left, self._seen = min(float(self._per_hour), self._left + grown), now
        return int(self._left)

    def used(self, count: int) -> None:
        """So many are moved."""
        self._left -= count
