"""Tables that fit a width: columns give way in their order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot_cli.top.ink import Line, Span, Tone, fit, row


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column: how wide at least, how much more it would like, and when it is left out."""

    title: str
    least: int
    most: int = 0
    right: bool = False
    # Columns with the highest number go first where there is no room; 0 stays.
    spare: int = 0


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Columns at a width."""

    columns: Sequence[Column]
    # The width of each; 0 is left out.
    widths: Sequence[int]
    width: int

    def heading(self) -> Line:
        """The titles."""
        return self.line([Span(column.title, Tone.HEAD) for column in self.columns])

    def line(self, cells: Sequence[Span | Line]) -> Line:
        """A row of cells; one that is drawn already, a bar, is taken as it is."""
        spans: list[Span] = []
        for column, size, cell in zip(self.columns, self.widths, cells, strict=True):
            if not size:
                continue
            if isinstance(cell, Span):
                spans.append(Span(fit(cell.text, size, right=column.right), cell.tone))
            else:
                spans.extend(cell)
            spans.append(Span(" "))
        return row(spans, self.width)

    def without(self, title: str) -> Layout:
        """The same with nothing in one column."""
        widths = [0 if column.title == title else size for column, size in self._sized()]
        return msgspec.structs.replace(self, widths=widths)

    def _sized(self) -> Iterator[tuple[Column, int]]:
        return zip(self.columns, self.widths, strict=True)

    def size(self, title: str) -> int:
        """How wide a column is."""
        return next(size for column, size in self._sized() if column.title == title)


def laid_out(columns: Sequence[Column], *, width: int) -> Layout:
    """Share a width out: everybody's least, the spare ones dropped where that is too much, then more in their order."""
    shown = list(columns)
    while sum(column.least + 1 for column in shown) > width:
        spare = max(shown, key=lambda column: column.spare)
        if not spare.spare:
            break
        shown.remove(spare)
    left = width - sum(column.least + 1 for column in shown)
    widths = []
    for column in columns:
        more = min(max(0, left), max(0, column.most - column.least)) if column in shown else 0
        left -= more
        widths.append(column.least + more if column in shown else 0)
    return Layout(columns=columns, widths=widths, width=width)
