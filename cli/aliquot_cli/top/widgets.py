"""What `aliquot top` draws on a terminal: the lines that stay, the rows, and what the marked row says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from aliquot_cli.top.frame import Frame, wrapped
from aliquot_cli.top.ink import COLOURS, Line, Tone, as_ascii
from aliquot_cli.top.tabular import Told

_HEAD = 4
_STYLES = {tone: Style.parse(COLOURS[tone][0]) if tone in COLOURS else Style.null() for tone in Tone}
_MARKED = Style(reverse=True)
# With what is above it, half of the smallest terminal.
_MOST = 8


def to_strip(line: Line, *, width: int, ascii_only: bool) -> Strip:
    """A line as the terminal takes it."""
    spans = [Segment(as_ascii(text) if ascii_only else text, _STYLES[tone]) for text, tone in line]
    return Strip(spans).adjust_cell_length(width)


class Head(Widget):
    """The lines that stay."""

    DEFAULT_CSS = f"Head {{ height: {_HEAD}; }}"
    frame: reactive[Frame | None] = reactive(None)

    def __init__(self, *, ascii_only: bool) -> None:
        super().__init__()
        self._ascii = ascii_only

    def render_line(self, y: int) -> Strip:
        """One of them."""
        width = self.size.width
        lines = self.frame.head(width) if self.frame else []
        if y >= len(lines):
            return Strip.blank(width)
        return to_strip(lines[y], width=width, ascii_only=self._ascii)


class Rows(ScrollView, can_focus=True):
    """All rows, of which those alone are drawn that are seen."""

    class Marked(Message):
        """Another row is marked."""

    DEFAULT_CSS = "Rows { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }"

    def __init__(self, *, ascii_only: bool) -> None:
        super().__init__()
        self._ascii = ascii_only
        self.frame: Frame | None = None
        self._mark = 0

    @property
    def told(self) -> Told | None:
        """What the marked row has no room for."""
        return self.frame.told(self._mark) if self.frame else None

    def show(self, frame: Frame) -> None:
        """Other rows; where one has scrolled to stays, and who is marked."""
        told = self.told
        self.frame = frame
        self._mark = frame.place_of(told) if told else 0
        self.virtual_size = Size(self.size.width, len(frame))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row that is at this line now."""
        width = self.size.width
        if self.frame is None:
            return Strip.blank(width)
        number = y + self.scroll_offset.y
        strip = to_strip(self.frame.line(number, width), width=width, ascii_only=self._ascii)
        return strip.apply_style(_MARKED) if number == self._mark and self.told else strip

    def to_top(self) -> None:
        """The first row, wherever one was."""
        self.scroll_home(animate=False)
        self.mark(0)

    def mark(self, number: int) -> None:
        """Have this row tell all it has, and in sight."""
        self._mark = max(0, min(number, len(self.frame or ()) - 1))
        self.refresh()
        self._see_mark()
        self.post_message(self.Marked())

    def on_resize(self) -> None:
        """Keep the marked row in sight."""
        if self.told:
            self._see_mark()

    def on_click(self, event: Click) -> None:
        """Mark a row."""
        if self.told:
            self.mark(event.y + self.scroll_offset.y)

    def _see_mark(self) -> None:
        first, height = self.scroll_offset.y, self.size.height
        wanted = min(max(first, self._mark - height + 1), self._mark)
        if wanted != first:
            self.scroll_to(y=wanted, animate=False)

    # --- keys: where rows tell more, they move the mark, elsewhere what is seen --------------------------------------
    def action_scroll_up(self) -> None:
        """One up."""
        self._go(-1, otherwise=super().action_scroll_up)

    def action_scroll_down(self) -> None:
        """One down."""
        self._go(1, otherwise=super().action_scroll_down)

    def action_page_up(self) -> None:
        """A screenful up."""
        self._go(-self.size.height, otherwise=super().action_page_up)

    def action_page_down(self) -> None:
        """A screenful down."""
        self._go(self.size.height, otherwise=super().action_page_down)

    def action_scroll_home(self) -> None:
        """To the first."""
        self._go(-len(self.frame or ()), otherwise=super().action_scroll_home)

    def action_scroll_end(self) -> None:
        """To the last."""
        self._go(len(self.frame or ()), otherwise=super().action_scroll_end)

    def _go(self, rows: int, *, otherwise: Callable[[], None]) -> None:
        if self.told:
            self.mark(self._mark + rows)
        else:
            otherwise()


class Telling(Widget):
    """The whole of what the marked row says, beneath the rows; nothing where the rows say all."""

    DEFAULT_CSS = "Telling { height: auto; display: none; }"

    def __init__(self, *, ascii_only: bool) -> None:
        super().__init__()
        self._ascii = ascii_only
        self._told: Told | None = None

    def show(self, told: Told | None) -> None:
        """What another row says."""
        if told != self._told:
            self._told = told
            self.display = told is not None
            self.refresh(layout=True)

    def lines(self, width: int) -> Sequence[Line]:
        """What stands in it."""
        return wrapped(self._told, width=width, most=_MOST) if self._told else ()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - the toolkit's
        """As many lines as the sentence takes at this width."""
        return len(self.lines(width))

    def render_line(self, y: int) -> Strip:
        """One of them."""
        width = self.size.width
        lines = self.lines(width)
        return to_strip(lines[y], width=width, ascii_only=self._ascii) if y < len(lines) else Strip.blank(width)
