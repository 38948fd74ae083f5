"""Amounts as people read them."""

from __future__ import annotations

UNKNOWN = "unknown"
NONE = "-"


def percent(value: int | None) -> str:
    """Percent of a GPU."""
    return UNKNOWN if value is None else f"{value} %"


def gib(mib: int | None) -> str:
    """Memory as people compare it."""
    return UNKNOWN if mib is None else f"{mib / 1024:.1f} GiB"


def cards(compute: int | None) -> str:
    """Compute of many GPUs, in GPUs."""
    return UNKNOWN if compute is None else f"{compute / 100:.1f}"


def part_of(amount: int | None, whole: int) -> str:
    """How much of all there is."""
    return UNKNOWN if amount is None else f"{100 * amount / whole:.0f} %" if whole else NONE
