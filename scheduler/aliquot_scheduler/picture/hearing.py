"""Is it a node that is silent, or do we hear nothing? Nobody is said to be silent while nothing comes from anybody."""

from __future__ import annotations

import math
from collections.abc import Callable

# Seconds that the leader's renewal may be late: it is among the words that are heard, and where few agents beat it is
# what tells a server that hangs from a node that died.
_LATE = 2.0
# So long after that agents may need until they are heard again: a heart-beat's own time.
_AGAIN = 10.0
# Where words come, but seldom, so long and no longer: then who is not heard is silent himself.
_DOUBT = 30.0


def deaf_after(renew: float) -> float:
    """So many seconds without a word of any Lease are deafness, where the leader renews its own every `renew`.

    A node's last beat may be half of its time (10 s) old when all falls silent. Where this is more than the other half,
    from a `renew` of 3 s on, a server that hangs is told of some nodes first.
    """
    return renew + _LATE


class Hearing:
    """Whether a node's silence is its own; asked as time passes."""

    def __init__(self, *, silence: Callable[[], float | None], after: float) -> None:
        """`silence`: how long ago anything was heard of any heart-beat; None where nothing is known of that.

        `after` so many seconds of it are deafness.
        """
        self._silence = silence
        self._after = after
        self._deaf_until = float("-inf")
        # Since when words come, if seldom, after the last time that none came at all.
        self._doubted = float("-inf")

    def deaf(self, now: float) -> bool:
        """Whether nothing is heard, or nothing was until just now."""
        silence = self._silence() or 0.0
        if silence > self._after:
            # The first that is missed, or so many that nobody is heard.
            if now >= self._deaf_until or silence > self._after + _AGAIN:
                self._doubted = now
            self._deaf_until = now + _AGAIN
        return now < self._deaf_until and now - self._doubted <= _DOUBT


def told_all() -> Hearing:
    """Of who is told all that there is, and listens to nobody: whose beat is old is silent himself."""
    return Hearing(silence=lambda: None, after=math.inf)
