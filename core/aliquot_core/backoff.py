"""How long to wait before the next try."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

# A uniform number in [0, 1), handed in so that a simulation can repeat itself.
Random = Callable[[], float]


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waits that double from `first` to `longest`; the later half of each is left to chance.

    Chance spreads a thousand agents that lost the same API server at the same instant.
    """

    first: float = 0.5
    longest: float = 30.0
    # A server that asks for hours is not obeyed for hours: our readers would go stale unseen.
    longest_asked: float = 120.0

    def delay(self, *, failures: int, random: Random, asked: float | None = None) -> float:
        """Seconds to wait after so many failures in a row (1 = the first), and not less than the server asked."""
        doublings = min(max(failures, 1) - 1, 32)
        wait = min(self.first * 2.0**doublings, self.longest)
        # What the server asked is the least; the jitter comes on top, or all would return at the same instant.
        return min(asked or 0.0, self.longest_asked) + wait * (0.5 + random() / 2)
