"""Rows as a terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.instants import seconds_of

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first row is the heading."""
    rows = [[tame(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def tame(text: str) -> str:
    """The text without what moves a cursor, changes colours or turns the writing round: others may have written it."""
    return "".join(one if one.isprintable() else "?" for one in text)


def ago(since: str, *, now: float) -> str:
    """How long ago an instant was, in its largest unit."""
    began = seconds_of(since)
    if began is None:
        return "-"
    seconds = max(0.0, now - began)
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{int(seconds // size)}{unit}"
