"""Instants as Kubernetes writes them, and as we count them: in seconds since 1970."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache


def seconds_of(text: str | None) -> float | None:
    """Read what Kubernetes wrote; None where nothing is written, or nothing that is an instant."""
    try:
        read = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    # Without a zone it would be read in that of this machine.
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def micro_time(wall: float) -> str:
    """Spell an instant as Kubernetes' MicroTime."""
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def second_time(wall: float) -> str:
    """Spell an instant as Kubernetes' Time, which has whole seconds."""
    return _second_time(math.floor(wall))


# strftime takes 5 µs, and of a busy second it is asked hundreds of times.
@lru_cache(maxsize=64)
def _second_time(second: int) -> str:
    return datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
