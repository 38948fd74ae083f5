"""Instants as Kubernetes writes them, and as we count them: in seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime


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
    return datetime.fromtimestamp(wall, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
