"""Which objects are to be looked at, and when: soon after they changed, or when they are due. Pure.

What must always hold: an object that was marked is given out after that mark, however often it was marked before; one
that is put off until a time is given out then, or when it is marked earlier.
"""

from __future__ import annotations

import heapq

# Changes of one object that come together are looked at together.
SETTLE = 0.1
# For whoever looks again at an instant of the wall clock: it may be a hair away by this one and not yet by that one.
LEAST_WAIT = 1e-3
# What rounding takes away: a wait that never quite ends would spin.
_HAIR = 1e-6
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0


class Worklist:
    """Objects by their keys."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._looked: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def mark(self, key: str, *, now: float) -> None:
        """Look at it soon; at once, if it was not looked at just now."""
        self._at(key, max(now, self._looked.get(key, now - SETTLE) + SETTLE))

    def later(self, key: str, *, at: float) -> None:
        """Look at it then."""
        self._at(key, at)

    def failed(self, key: str, *, now: float) -> None:
        """Look at it again after a pause that grows."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._at(key, now + min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE))

    def went_well(self, key: str) -> None:
        """Forget its failures."""
        self._failures.pop(key, None)

    def forget(self, key: str) -> None:
        """It is gone."""
        for book in (self._due, self._looked, self._failures):
            book.pop(key, None)

    def next(self, *, now: float) -> str | None:
        """Give one that is due."""
        while self._heap and self._heap[0][0] <= now + _HAIR:
            at, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                self._looked[key] = now
                return key
        return None

    def wake_at(self) -> float | None:
        """Say when the next may be due."""
        return self._heap[0][0] if self._heap else None

    def _at(self, key: str, at: float) -> None:
        if at < self._due.get(key, at + 1):
            self._due[key] = at
            heapq.heappush(self._heap, (at, key))
