"""Whether the agent's loops turn: each says so when it does, and one that is silent for too long hangs.

A loop that ends takes the process with it; this is for one that waits for ever. What a loop waits for has a deadline of
its own, so the times allowed are those deadlines and some more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot_core.clock import Clock


class Pulse:
    """The loops by name, and when each was heard of last."""

    def __init__(self, *, clock: Clock, allowed: Mapping[str, float]) -> None:
        """`allowed` is how many seconds each may be silent."""
        self._clock = clock
        self._allowed = allowed
        self._last = dict.fromkeys(allowed, clock.monotonic())

    def beat(self, name: str) -> Callable[[], None]:
        """What the loop of this name calls."""

        def beat() -> None:
            self._last[name] = self._clock.monotonic()

        return beat

    def silent(self) -> dict[str, float]:
        """The loops that hang, and for how many seconds."""
        now = self._clock.monotonic()
        return {
            name: now - self._last[name] for name, allowed in self._allowed.items() if now - self._last[name] > allowed
        }
