"""Bars: a GPU cut into slices, a queue within its guarantee and beyond. Pure.

A slice begins with a cut, so that two of one colour, and all of them without colour, can be told apart: `▏███░░`. Full
cells are used, light ones granted and idle; where nobody tells what is used they are medium, and empty cells are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aliquot_cli.top.ink import Line, Span, Tone

USED, GRANTED, UNKNOWN, FREE, CUT, OUT = "█", "░", "▓", "·", "▏", "x"


class Part(NamedTuple):
    """A slice: how much of the whole it is granted, and how much it uses if that is known."""

    granted: float
    used: float | None
    tone: Tone


def cut_bar(parts: Sequence[Part], *, whole: float, width: int, out: bool = False) -> Line:
    """A bar of so many cells; each part has at least one while there is room, and all together never more than all.

    Of a GPU whose node is `out` what nobody has is not free.
    """
    spans: list[Span] = []
    ends = _ends([part.granted for part in parts], whole=whole, width=width)
    begin = 0
    for part, end in zip(parts, ends, strict=True):
        if size := end - begin:
            spans.append(Span(_slice(part, size), part.tone))
        begin = end
    return (*spans, Span((OUT if out else FREE) * (width - begin), Tone.BAD if out else Tone.DIM))


def _ends(amounts: Sequence[float], *, whole: float, width: int) -> list[int]:
    """Where each part ends: at its true place, but one cell on at least, and back where others need their cell."""
    count = len(amounts)
    if count > width:
        # One cell each, while there are any.
        return [min(index + 1, width) for index in range(count)]
    ends: list[int] = []
    total = 0.0
    for index, amount in enumerate(amounts):
        total += amount
        true = round(total / whole * width) if whole else 0
        ends.append(min(max(true, ends[-1] + 1 if ends else 1), width - (count - 1 - index)))
    return ends


def _slice(part: Part, size: int) -> str:
    body = size - 1
    if part.used is None:
        return CUT + UNKNOWN * body
    full = min(body, round(body * part.used / part.granted)) if part.granted else 0
    # One that uses anything shows it, if it has room to.
    if part.used and body:
        full = max(1, full)
    return CUT + USED * full + GRANTED * (body - full)


def level_bar(*, used: int, guarantee: int, fair: int | None, whole: int, width: int, tone: Tone) -> Line:
    """A queue's bar: what it uses of its guarantee, what it borrows, what is kept for it, and where its due ends."""
    within, borrowed, kept = min(used, guarantee), max(0, used - guarantee), max(0, guarantee - used)
    marks = [round(amount / whole * width) if whole else 0 for amount in (within, within + borrowed)]
    inner, outer = (min(width, mark) for mark in marks)
    reserved = min(width - outer, round(kept / whole * width) if whole else 0)
    body = USED * (inner) + UNKNOWN * (outer - inner) + GRANTED * reserved
    body += FREE * (width - len(body))
    if fair is None or not whole:
        return (Span(body, tone),)
    at = min(width - 1, max(0, round(fair / whole * width)))
    return Span(body[:at], tone), Span("│", Tone.HEAD), Span(body[at + 1 :], tone)
