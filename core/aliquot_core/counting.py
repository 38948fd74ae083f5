"""Counts in sentences that people read: one pod has, two pods have."""

from __future__ import annotations

from collections.abc import Sequence

# How many names a sentence lists.
NAMED = 8


def counted(count: int, thing: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def agreed(count: int, one: str, many: str) -> str:
    """The word that goes with so many."""
    return one if count == 1 else many


def some_of(count: int, total: int, thing: str, *, one: str = "has", many: str = "have") -> str:
    """`3 of 8 GPUs have`, `1 of 8 GPUs has`, `0 of 1 GPU has`; with another verb where it is given."""
    return f"{count} of {counted(total, thing)} {one if 1 in (count, total) else many}"


def none_of(total: int, thing: str, *, one: str, none: str) -> str:
    """`none of 8 nodes has room`, and of a single one `the only node has no room`."""
    return f"the only {thing} {one}" if total == 1 else f"none of {counted(total, thing)} {none}"


def listed(names: Sequence[str]) -> str:
    """Some names of many, as people read them."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
