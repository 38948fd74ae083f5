"""Instants and spans of time as kubectl's tables show them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800))
_DAY = 86400


def instant(text: str) -> float | None:
    """Read a time as the API writes it; nothing where it is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def span(seconds: float) -> str:
    """Say how long something took, shortly."""
    whole = max(0, int(seconds))
    for unit, size, most in _UNITS:
        if whole < most:
            return f"{whole // size}{unit}"
    return f"{whole // _DAY}d"
