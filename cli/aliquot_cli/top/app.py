"""`aliquot top` on a terminal: keys and sizes in, frames out; what a frame is stands in `frame`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input

from aliquot_cli.top.frame import Choice, Frame
from aliquot_cli.top.views import TABLES
from aliquot_cli.top.widgets import Head, Rows, Telling
from aliquot_scheduler.page.model import State

Look = Callable[[], Awaitable[State | None]]

_LOST = "nobody answers; this was the last word"


class TopApp(App[None]):
    """The screen."""

    CSS = "Screen { background: ansi_default; } Input { dock: bottom; display: none; height: 1; border: none; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        # The head names them with their keys: with them in the foot too, 80 columns have no room for the last.
        *(Binding(str(n + 1), f"table({n})", one.title, show=False) for n, one in enumerate(TABLES)),
        Binding("tab", "next_table", "next", show=False, priority=True),
        Binding("s", "sort", "sort"),
        Binding("r", "turn", "reverse"),
        Binding("slash", "search", "filter"),
        Binding("escape", "clear", "all", show=False),
        Binding("space", "hold", "hold"),
        Binding("q", "quit", "quit"),
        # The toolkit would only say which other key ends it, and a field of text would take it for a copy.
        Binding("ctrl+c", "quit", show=False, priority=True),
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
        yield Telling(ascii_only=self._ascii)
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
        self._tell()

    def _tell(self) -> None:
        self.query_one(Telling).show(self.query_one(Rows).told)

    def _choose(self, choice: Choice, *, top: bool = False) -> None:
        self._choice = choice
        self._show()
        if top:
            self.query_one(Rows).to_top()

    def on_rows_marked(self) -> None:
        """Another row is asked."""
        self._tell()

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
