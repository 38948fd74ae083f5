"""What a view is: a title, and pieces of which some change. Two of the same view can be compared, and the change told.

A region is an element whose children bear keys. What a reader is told of a change is, by region, the children that are
new or different, and all keys in their order where that is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot_scheduler.page.html import Html, join, open_tag, tag

# What is no longer is a word or an amount, and stays in one piece.
_SHORT = 40

Children = Mapping[str, Html]


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A part that changes: each child is one element, which bears its key (`keyed`)."""

    name: str
    children: Children
    element: str = "div"
    style: str | None = None

    def html(self) -> Html:
        """The whole of it."""
        begin = open_tag(self.element, id=self.name, class_=self.style, data_region=True)
        return Html(f"{begin}{''.join(self.children.values())}</{self.element}>")


Piece = Html | Region


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One view at one instant; `section` is the entry of the menu that it belongs to."""

    title: str
    section: str
    pieces: tuple[Piece, ...]
    # Whether there is such a thing.
    found: bool = True
    # What draws beside the HTML.
    script: str = ""

    def body(self) -> Html:
        """All pieces."""
        return join(*(piece.html() if isinstance(piece, Region) else piece for piece in self.pieces))

    def regions(self) -> dict[str, Children]:
        """What changes, by name."""
        found: dict[str, Children] = {}
        for piece in self.pieces:
            if isinstance(piece, Region):
                found[piece.name] = piece.children
        return found


def change(before: Mapping[str, Children], after: Mapping[str, Children]) -> dict[str, Any]:
    """What makes the one into the other; empty where they are the same."""
    changes: dict[str, Any] = {}
    for name, children in after.items():
        was = before.get(name, {})
        # Plain strings: the encoder of JSON takes no others.
        new = {key: str(html) for key, html in children.items() if was.get(key) != html}
        told: dict[str, Any] = {"set": new} if new else {}
        if list(was) != list(children):
            told["keys"] = list(children)
        if told:
            changes[name] = told
    return changes


def keyed(name: str, key: str, /, *children: object, **attributes: str | int | None) -> Html:
    """Make a child of a region."""
    return tag(name, *children, data_key=key, **attributes)


def table(
    caption: str, heads: tuple[str, ...], region: Region, *, numbers: frozenset[int] = frozenset()
) -> list[Piece]:
    """A table whose body is a region; `numbers` are the columns of numbers."""
    cells = [tag("th", head, scope="col", class_="num" if at in numbers else None) for at, head in enumerate(heads)]
    begin = f'<div class="scroll"><table>{tag("caption", caption)}<thead>{tag("tr", *cells)}</thead>'
    return [Html(begin), region, Html("</table></div>")]


def row(
    key: str, *cells: object, heads: Sequence[str], numbers: frozenset[int] = frozenset(), filter_: str | None = None
) -> Html:
    """A row of such a table: its first cell is its heading, each other one bears its column's for narrow screens."""
    first, *rest = cells
    parts = [tag("th", first, scope="row")]
    parts += [
        tag("td", cell, class_="num" if at in numbers else _length(cell), data_head=head)
        for at, (head, cell) in enumerate(zip(heads[1:], rest, strict=True), start=1)
    ]
    return keyed("tr", key, *parts, data_filter=filter_)


def _length(cell: object) -> str | None:
    """Sentences get room, and are broken anywhere: on a phone a column would be a letter wide, or as wide as a hash."""
    return "long" if not isinstance(cell, Html) and len(str(cell)) > _SHORT else None
