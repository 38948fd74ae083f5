"""Lines of a terminal as data: pieces of text with a style each. Pure.

Names and sentences come from whoever may write a pod, so what a terminal would obey is taken out of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from aliquot_cli.tables import tame

_WIDE = frozenset({"W", "F"})
_ELLIPSIS = "…"
# For terminals that know no others; each is one cell wide as the one it stands for.
_ASCII = str.maketrans({"█": "#", "▓": "=", "░": "-", "·": ".", "▏": "|", "…": "~", "▲": "^", "▼": "v", "│": "|"})


class Tone(StrEnum):
    """What a piece of text is; queues have colours of their own."""

    PLAIN = ""
    HEAD = "head"
    DIM = "dim"
    GOOD = "good"
    BAD = "bad"
    HUE_0 = "hue0"
    HUE_1 = "hue1"
    HUE_2 = "hue2"
    HUE_3 = "hue3"
    HUE_4 = "hue4"
    HUE_5 = "hue5"


HUES = (Tone.HUE_0, Tone.HUE_1, Tone.HUE_2, Tone.HUE_3, Tone.HUE_4, Tone.HUE_5)
# The sixteen colours that every terminal's owner has chosen to be readable, light or dark.
COLOURS = {
    Tone.HEAD: ("bold", "1"),
    Tone.DIM: ("dim", "2"),
    Tone.GOOD: ("green", "32"),
    Tone.BAD: ("bold red", "1;31"),
    Tone.HUE_0: ("cyan", "36"),
    Tone.HUE_1: ("magenta", "35"),
    Tone.HUE_2: ("yellow", "33"),
    Tone.HUE_3: ("green", "32"),
    Tone.HUE_4: ("blue", "34"),
    Tone.HUE_5: ("bright_red", "91"),
}


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]


def cells(text: str) -> int:
    """How many cells a tame text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(one) for one in text)


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many cells; what is cut off is said to be."""
    text = tame(text)
    free = width - cells(text)
    if free >= 0:
        return " " * free + text if right else text + " " * free
    kept = ""
    for one in text:
        if cells(kept) + _cells(one) > width - 1:
            break
        kept += one
    cut = kept + _ELLIPSIS if width else ""
    return cut + " " * (width - cells(cut))


def row(parts: Sequence[Span], width: int) -> Line:
    """Pieces one after another, in exactly so many cells."""
    found: list[Span] = []
    left = width
    for text, tone in parts:
        if cells(text) > left:
            found.append(Span(fit(text, left), tone))
            return tuple(found)
        found.append(Span(text, tone))
        left -= cells(text)
    return (*found, Span(" " * left))


def plain(line: Line, *, ascii_only: bool = False) -> str:
    """The line's text, without what is empty at its end."""
    text = "".join(span.text for span in line).rstrip()
    return as_ascii(text) if ascii_only else text


def coloured(line: Line, *, ascii_only: bool = False) -> str:
    """The line as a terminal takes it."""
    parts = []
    for text, tone in line:
        shown = as_ascii(text) if ascii_only else text
        parts.append(f"\033[{COLOURS[tone][1]}m{shown}\033[0m" if tone in COLOURS else shown)
    return "".join(parts).rstrip()


def as_ascii(text: str) -> str:
    """The same in signs that every terminal has."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def _cells(one: str) -> int:
    if unicodedata.combining(one):
        return 0
    return 2 if unicodedata.east_asian_width(one) in _WIDE else 1
