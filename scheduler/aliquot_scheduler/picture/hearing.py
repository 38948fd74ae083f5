"""Is it a node that is silent, or do we hear nothing? Nobody is said to be silent while nothing comes from anybody."""

from __future__ import annotations

from collections.abc import Callable

# Seconds without a word of any Lease: among them is the leader's own, which it renews every two. A node's last beat may
# be half of its time old when all falls silent, so it is less than that.
DEAF = 4.0
# So long after that agents may need until they are heard again: a heart-beat's own time.
_AGAIN = 10.0


class Hearing:
    """Whether a node's silence is its own; asked as time passes."""

    def __init__(self, silence: Callable[[], float | None]) -> None:
        """`silence`: how long ago anything was heard of any heart-beat; None where nothing is known of that."""
        self._silence = silence
        self._deaf_until = float("-inf")

    def deaf(self, now: float) -> bool:
        """Whether nothing is heard, or nothing was until just now."""
        if (self._silence() or 0.0) > DEAF:
            self._deaf_until = now + _AGAIN
        return now < self._deaf_until
