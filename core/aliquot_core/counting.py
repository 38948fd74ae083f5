"""Counts in sentences that people read: one pod has, two pods have."""

from __future__ import annotations


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
