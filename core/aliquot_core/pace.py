"""How often nodes show that they live: the centre writes it, agents read it, and both must mean the same."""

from __future__ import annotations

import math

# Heart-beats of all nodes together: so many writes a second an API server shall see, and no more.
MOST_WRITES_PER_SECOND = 100
SHORTEST = 5.0
# That of 60,000 nodes. What is longer was not written by us, and a node that died would be missed too late.
LONGEST = 600.0


def interval_for(nodes: int) -> float:
    """Seconds between two heart-beats of a node, among so many: whole ones, so that few changes are worth a write."""
    return min(max(SHORTEST, float(math.ceil(nodes / MOST_WRITES_PER_SECOND))), LONGEST)


def write_interval(seconds: float) -> str:
    """Spell an interval for an annotation."""
    return f"{seconds:g}"


def read_interval(text: str) -> float | None:
    """What an annotation says of the interval; nothing if it can't be followed."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if SHORTEST <= seconds <= LONGEST else None
