"""What stands on the screen: a state of the cluster as it was chosen to be seen. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from aliquot_cli.tables import tame
from aliquot_cli.top.columns import Layout, laid_out
from aliquot_cli.top.ink import Line, Span, Tone, cells, row
from aliquot_cli.top.tabular import Scene, Table, Told, scene_of
from aliquot_cli.top.views import TABLES
from aliquot_core.counting import agreed, counted
from aliquot_scheduler.page.model import State, Totals

_INDENT = "    "


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to see."""

    table: int = 0
    order: int = 0
    backwards: bool = False
    filter: str = ""

    def next_order(self) -> Choice:
        """Sorted by the next."""
        return msgspec.structs.replace(self, order=(self.order + 1) % len(TABLES[self.table].orders))

    def turned(self) -> Choice:
        """The other way round."""
        return msgspec.structs.replace(self, backwards=not self.backwards)

    def on(self, table: int) -> Choice:
        """Another table; what is looked for stays."""
        return Choice(table=table % len(TABLES), filter=self.filter)

    def looking_for(self, text: str) -> Choice:
        """Those rows alone that have every word."""
        return msgspec.structs.replace(self, filter=text)


class Frame:
    """One state under one choice; rows are drawn when they are asked for."""

    def __init__(self, *, state: State, choice: Choice, source: str) -> None:
        """`source` says where the state is from."""
        self._scene: Scene = scene_of(state)
        self.choice = choice
        self._source = source
        self._table: Table[Any] = TABLES[choice.table]
        # What is listed, in its order.
        self.things = _chosen(self._table, state, choice)
        self._layout: Layout | None = None

    def __len__(self) -> int:
        """How many rows there are to scroll through."""
        return len(self.things)

    @property
    def widest(self) -> int:
        """How wide it is with every column as wide as it may be."""
        return sum(max(column.least, column.most) + 1 for column in self._table.columns)

    def names(self, *, domain: str) -> Sequence[str]:
        """What is listed, as other commands name it."""
        return [self._table.name(thing, domain) for thing in self.things]

    def chosen(self, choice: Choice) -> Frame:
        """The same state under another choice."""
        return Frame(state=self._scene.state, choice=choice, source=self._source)

    def head(self, width: int) -> Sequence[Line]:
        """The lines above the rows: sums, what is seen and how, and the columns' titles."""
        return [
            row(_sums(self._scene.state.totals, at=self._scene.state.at), width),
            row(_shares(self._scene.state), width),
            row(self._tabs(width), width),
            self._at(width).heading(),
        ]

    def line(self, number: int, width: int) -> Line:
        """One row; an empty one past the end."""
        if number >= len(self.things):
            return row([], width)
        return self._table.draw(self.things[number], self._at(width), self._scene)

    def whole(self, number: int, width: int) -> Sequence[Line]:
        """One row, and beneath it what has no room in it: for whoever can't mark it."""
        layout, told = self._at(width), self.told(number)
        if told is None or cells(tame(told.text)) <= layout.size(self._table.told_in):
            return [self.line(number, width)]
        first = self._table.draw(self.things[number], layout.without(self._table.told_in), self._scene)
        text = textwrap.wrap(tame(told.text), width, initial_indent=_INDENT, subsequent_indent=_INDENT)
        return [first, *(row([Span(line)], width) for line in text)]

    def told(self, number: int) -> Told | None:
        """All that a row says; None where the row shows it itself."""
        if self._table.tell is None or number >= len(self.things):
            return None
        told: Told = self._table.tell(self.things[number])
        return told

    def place_of(self, told: Told) -> int:
        """Where in the list somebody stands now; the first place where he is gone."""
        return next((n for n in range(len(self)) if (one := self.told(n)) is not None and one.of == told.of), 0)

    def _at(self, width: int) -> Layout:
        if self._layout is None or self._layout.width != width:
            self._layout = laid_out(self._table.columns, width=width)
        return self._layout

    def _tabs(self, width: int) -> list[Span]:
        tabs = []
        for number, table in enumerate(TABLES):
            here = number == self.choice.table
            title = f"[{number + 1}:{table.title}] " if here else f" {number + 1}:{table.title}  "
            tabs.append(Span(title, Tone.HEAD if here else Tone.DIM))
        order = self._table.orders[self.choice.order].title
        tabs.append(Span(f" by {order} {'▲' if self.choice.backwards else '▼'}", Tone.DIM))
        if self.choice.filter:
            tabs.append(Span(f"  only {self.choice.filter!r}: {len(self)}", Tone.HEAD))
        source = f"  {self._source}"
        # Half a word of where it is from tells nothing.
        if sum(cells(tab.text) for tab in tabs) + cells(source) <= width:
            tabs.append(Span(source, Tone.DIM))
        return tabs


def wrapped(told: Told, *, width: int, most: int) -> Sequence[Line]:
    """Who, and under it the whole sentence; what does not fit so many lines is said to be cut."""
    text = textwrap.wrap(tame(told.text), width, max_lines=most - 1, placeholder=" …")
    return [row([Span(tame(told.of), Tone.HEAD)], width), *(row([Span(line)], width) for line in text)]


def _chosen(table: Table[Any], state: State, choice: Choice) -> list[Any]:
    wanted = choice.filter.lower().split()
    things = list(table.things(state))
    if wanted:
        things = [thing for thing in things if all(word in table.words(thing).lower() for word in wanted)]
    key = table.orders[choice.order].key
    if key is not None:
        things.sort(key=key)
    return things[::-1] if choice.backwards else things


def _sums(totals: Totals, *, at: float) -> list[Span]:
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    sick = [Span(f", {totals.gpus_sick} sick", Tone.BAD)] if totals.gpus_sick else []
    counts = (totals.nodes_out, "out"), (totals.nodes_unheard, "unheard")
    out = [Span(f", {count} {what}", Tone.BAD) for count, what in counts if count]
    emphasis = Tone.HEAD if totals.waiting else Tone.PLAIN
    return [
        Span(f"aliquot  {clock}  ", Tone.HEAD),
        Span(counted(totals.nodes, "node")),
        *out,
        Span(f"  {counted(totals.gpus, 'GPU')}"),
        *sick,
        Span(f"  {totals.running} {agreed(totals.running, 'runs', 'run')}"),
        Span(f"  {totals.waiting} {agreed(totals.waiting, 'waits', 'wait')}", emphasis),
    ]


def _shares(state: State) -> list[Span]:
    totals = state.totals
    compute = _share("compute", totals.compute_granted, totals.compute_used, totals.compute)
    memory = _share("memory", totals.memory_granted, totals.memory_used, totals.memory)
    taken = _strays(totals)
    unknown = [] if state.used_at is not None else [Span("  use is not known here", Tone.DIM)]
    # First, as whatever follows may be old.
    paused = [Span(f"paused: {state.paused}  ", Tone.BAD)] if state.paused else []
    return [*paused, Span(f"{compute}   {memory}"), *taken, *unknown]


def _strays(totals: Totals) -> list[Span]:
    """What looks free and is not."""
    amounts = (("compute", totals.compute_stray, totals.compute), ("memory", totals.memory_stray, totals.memory))
    told = [f"{100 * held / whole:.0f} % of {what}" for what, held, whole in amounts if held and whole]
    return [Span(f"  without a grant {', '.join(told)}", Tone.BAD)] if told else []


def _share(what: str, granted: int, used: int | None, whole: int) -> str:
    if not whole:
        return f"{what}: none"
    told = "" if used is None else f", {100 * used / whole:.0f} % used"
    return f"{what} {100 * granted / whole:.0f} % granted{told}"
