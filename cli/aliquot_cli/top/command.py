"""`aliquot top`: the cluster as it lives."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import click

from aliquot_cli.cluster import Place, connected, patient
from aliquot_cli.finite import FiniteRange
from aliquot_cli.handing_out import hand_out
from aliquot_cli.options import FORMS, Call, form_option, make_call, page_option, server_options
from aliquot_cli.printing import printed
from aliquot_cli.reading import in_force, read_everything
from aliquot_cli.top.frame import Choice, Frame
from aliquot_cli.top.ink import coloured, plain
from aliquot_cli.top.onlooker import Onlooker, renewed_every
from aliquot_cli.top.page_reader import PageReader
from aliquot_cli.top.views import TABLES
from aliquot_core.errors import ClusterError, UserError
from aliquot_kube.clock import SystemClock
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_scheduler.page.model import State

_TABLES = [table.title.lower() for table in TABLES]
_SIZE = (80, 24)


class BlindError(ClusterError):
    """There is nobody who tells."""


class NoTerminalError(UserError):
    """What shows it is not there."""


class Source(Protocol):
    """Tells how the cluster is."""

    title: str

    async def look(self) -> State | None:
        """How it is now."""
        ...


@click.command()
@click.argument("view", type=click.Choice(_TABLES), default=_TABLES[0])
@click.option("--once", is_flag=True, help="Print all of it once, and end.")
@click.option("--every", type=FiniteRange(min=0.2), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--filter", "words", default="", metavar="WORDS", help="Only rows with all these words.")
@form_option(usual=None, text="Print it once, in this form.")
@page_option
@server_options
def top(*, view: str, once: bool, every: float, words: str, form: str | None, page: str, **server: Any) -> None:
    """Show GPUs cut into slices, queues, pods and who waits for what, as they change.

    A bar's cells are used (full), granted and idle (light), free (dots) or on a node that is out (x); each slice
    begins with a cut, and has its queue's colour. A queue's bar shows what it uses of its guarantee, what it borrows
    (medium), what is kept for it (light), and its fair share (a line). Keys: 1 to 4 or tab change the view, s sorts,
    r turns it round, / filters, space holds, q or Ctrl-C ends. Use is known from the centre's page alone; without one
    it says so.

    \b
    Examples:
      aliquot top
      aliquot top queues
      aliquot top --once --filter 'a100-1 sick'
      aliquot top pods -o json
    """
    call = make_call(**server)
    choice = Choice(table=_TABLES.index(view), filter=words)
    if once or form:
        asyncio.run(_print_once(call, page=page, choice=choice, form=form or FORMS[0]))
    else:
        asyncio.run(_show(call, page=page, choice=choice, every=every))


@asynccontextmanager
async def source_for(call: Call, *, page: str) -> AsyncIterator[Source]:
    """The centre's page, if it is known and answers; else what the API has."""
    known = page or _page_of(call.place)
    if known:
        async with _page_reader(call.place, page=known) as reader:
            if await reader.look() is not None:
                yield reader
                return
    if page:
        raise BlindError("no page of this version answers", where=page, remedy="check --page, or leave it out")
    async with connected("top", place=call.place, say=_not_on_a_screen) as connection:
        everything = await read_everything(connection.client, names=call.names)
        if everything is None:
            what = "you may not read all nodes and pods"
            raise BlindError(what, where="aliquot top", remedy="name the centre's page with --page, or ask an operator")
        onlooker = Onlooker(
            transport=connection.transport,
            clock=SystemClock(),
            random=random.random,
            names=call.names,
            settings=in_force(everything.leases, call=call).queues,
            renew=renewed_every(everything.leases),
        )
        async with onlooker:
            yield onlooker


@asynccontextmanager
async def _page_reader(place: Place, *, page: str) -> AsyncIterator[PageReader]:
    transport = PlainTransport(PlainServer(url=page), user_agent="aliquot-top")
    try:
        async with patient(transport, place=place, say=_not_on_a_screen) as patiently:
            yield PageReader(patiently)
    finally:
        await transport.close()


def _not_on_a_screen(_: str) -> None:
    """The screen says it by itself, until it is given up."""


def _page_of(place: Place) -> str:
    return place.up.page if place.up else ""


async def _print_once(call: Call, *, page: str, choice: Choice, form: str) -> None:
    async with source_for(call, page=page) as source:
        state = await source.look()
    if state is None:
        raise BlindError("nobody answers", where="aliquot top")
    frame = Frame(state=state, choice=choice, source=source.title)
    text = printed(
        frame.things,
        form=form,
        text=lambda wide: _drawn(frame, width=frame.widest if wide else shutil.get_terminal_size(_SIZE).columns),
        lines=lambda: frame.names(domain=call.names.domain),
    )
    if text:
        hand_out(text)


def _drawn(frame: Frame, *, width: int) -> str:
    ascii_only = _ascii_only()
    drawn = coloured if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else plain
    lines = [*frame.head(width), *(line for number in range(len(frame)) for line in frame.whole(number, width))]
    return "\n".join(drawn(line, ascii_only=ascii_only) for line in lines)


async def _show(call: Call, *, page: str, choice: Choice, every: float) -> None:
    if not sys.stdout.isatty():
        raise NoTerminalError("this is no terminal", where="aliquot top", remedy="use --once")
    try:
        # A quarter of a second and 21 MiB, for whoever looks on.
        from aliquot_cli.top.app import TopApp
    except ImportError:
        remedy = "install the extra aliquot[top], or use --once"
        raise NoTerminalError("textual is not installed", where="aliquot top", remedy=remedy) from None
    async with source_for(call, page=page) as source:
        app = TopApp(look=source.look, source=source.title, every=every, choice=choice, ascii_only=_ascii_only())
        await app.run_async()


def _ascii_only() -> bool:
    return "utf" not in (sys.stdout.encoding or "").lower()
