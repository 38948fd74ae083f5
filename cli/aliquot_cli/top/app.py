"""`aliquot top` on a terminal: keys and sizes in, frames out; what a frame is stands in `frame`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Footer, Input

from aliquot_cli.top.frame import Choice, Frame
from aliquot_cli.top.ink import COLOURS, Line, Tone, as_ascii
from aliquot_cli.top.views import TABLES
from aliquot_scheduler.page.model import State

Look = Callable[[], Awaitable[State | None]]

_HEAD = 4
_STYLES = {tone: Style.parse(COLOURS[tone][0]) if tone in COLOURS else Style.null() for tone in Tone}
_LOST = "nobody answers; this was the last word"


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

    DEFAULT_CSS = "Rows { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }"

    def __init__(self, *, ascii_only: bool) -> None:
        super().__init__()
        self._ascii = ascii_only
        self.frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        """Other rows; where one has scrolled to stays."""
        self.frame = frame
        self.virtual_size = Size(self.size.width, len(frame))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The row that is at this line now."""
        width = self.size.width
        if self.frame is None:
            return Strip.blank(width)
        line = self.frame.line(y + self.scroll_offset.y, width)
        return to_strip(line, width=width, ascii_only=self._ascii)


class TopApp(App[None]):
    """The screen."""

    CSS = "Screen { background: ansi_default; } Input { dock: bottom; display: none; height: 1; border: none; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n + 1), f"table({n})", one.title, show=True) for n, one in enumerate(TABLES)),
        Binding("tab", "next_table", "next", show=False, priority=True),
        Binding("s", "sort", "sort"),
        Binding("r", "turn", "reverse"),
        Binding("slash", "search", "filter"),
        Binding("escape", "clear", "all", show=False),
        Binding("space", "hold", "hold"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, *, look: Look, source: str, every: float, choice: Choice, ascii_only: bool = False) -> None:
        """`look` gives the state; None where it is not to be had now."""
        super().__init__(ansi_color=True)
        self._look = look
        self._source = source
        self._every = every
        self._ascii = ascii_only
        self._held = False
        self._state: State | None = None
        self._choice = choice

    def compose(self) -> ComposeResult:
        """What stands where."""
        yield Head(ascii_only=self._ascii)
        yield Rows(ascii_only=self._ascii)
        yield Input(placeholder="only rows with these words")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        """Look at once, and then again and again."""
        self.query_one(Rows).focus()
        await self._see()
        self.set_interval(self._every, self._see)

    async def _see(self) -> None:
        if self._held and self._state is not None:
            return
        state = await self._look()
        self._state = state or self._state
        self._show("" if state else _LOST)

    def _show(self, lost: str = "") -> None:
        if self._state is None:
            return
        held = "held; space goes on" if self._held else ""
        frame = Frame(state=self._state, choice=self._choice, source=lost or held or self._source)
        self.query_one(Head).frame = frame
        self.query_one(Rows).show(frame)

    def _choose(self, choice: Choice, *, top: bool = False) -> None:
        self._choice = choice
        if top:
            self.query_one(Rows).scroll_home(animate=False)
        self._show()

    # --- keys --------------------------------------------------------------------------------------------------------
    def action_table(self, number: int) -> None:
        """Another table."""
        self._choose(self._choice.on(number), top=True)

    def action_next_table(self) -> None:
        """The one after."""
        self.action_table(self._choice.table + 1)

    def action_sort(self) -> None:
        """By the next column."""
        self._choose(self._choice.next_order(), top=True)

    def action_turn(self) -> None:
        """The last first."""
        self._choose(self._choice.turned(), top=True)

    def action_hold(self) -> None:
        """Stand still, or go on."""
        self._held = not self._held
        self._show()

    def action_search(self) -> None:
        """Ask for words."""
        words = self.query_one(Input)
        words.display = True
        words.value = self._choice.filter
        words.focus()

    def action_clear(self) -> None:
        """All rows again."""
        self._choose(self._choice.looking_for(""))
        self._close_search()

    def on_input_changed(self, event: Input.Changed) -> None:
        """What has them so far."""
        self._choose(self._choice.looking_for(event.value), top=True)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """Enough words."""
        self._close_search()

    def _close_search(self) -> None:
        self.query_one(Input).display = False
        self.query_one(Rows).focus()
