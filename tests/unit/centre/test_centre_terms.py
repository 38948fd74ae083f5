"""A replica that led before: nothing stays of a term that is over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sized
from typing import cast

import pytest

from aliquot_cli.running import forget_what_ended
from aliquot_kube.leadership import Leadership
from aliquot_scheduler.centre.centre import Centre
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.queues.said.dues import Hardware
from support.reigning import Reigning, until


class Terms:
    """A candidate who leads when a test says so."""

    def __init__(self) -> None:
        self.leads = False
        self._changed = asyncio.Event()

    def turn(self, *, leads: bool) -> None:
        """Lead, or lead no longer."""
        self.leads = leads
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, *, leads: bool) -> None:
        """Wait for it."""
        while self.leads is not leads:
            await self._changed.wait()


async def term(centre: Centre, terms: Terms, over: Sized) -> weakref.ref[object]:
    """Let the centre reign until it knows all, as if for long, and end it; what it knew."""
    terms.turn(leads=True)
    await until(lambda: centre.reign is not None and not centre.reign.why_not())
    assert centre.reign is not None
    known, before = weakref.ref[object](centre.reign.picture), len(over)
    # What lives by now is looked at no more, as where a process reigns.
    gc.freeze()
    terms.turn(leads=False)
    await until(lambda: len(over) > before)
    # Streams of the term are closed by tasks of their own.
    for _ in range(10):
        await asyncio.sleep(0)
    return known


def new_reign() -> Reign:
    """Over a cluster of its own."""
    return Reigning(CentreSettings()).reign


@pytest.mark.parametrize("lets_go", [True, False])
async def test_what_a_term_knew_goes_with_it(*, lets_go: bool) -> None:
    """A term is a knot of references that were frozen: without letting go, each would leave its picture behind."""
    terms = Terms()
    over: list[None] = []

    def ended() -> None:
        if lets_go:
            forget_what_ended()
        over.append(None)

    centre = Centre(leadership=cast("Leadership", terms), reign=new_reign, ended=ended)
    running = asyncio.ensure_future(centre.run())
    try:
        terms_known = [await term(centre, terms, over), await term(centre, terms, over)]
        gc.collect()
        assert [known() is None for known in terms_known] == [lets_go, lets_go]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as it was found


async def test_what_there_is_of_cards_is_told_by_who_leads_alone() -> None:
    """A replica that does not lead follows no nodes, and says so by knowing of none."""
    cluster, terms = Reigning(CentreSettings()), Terms()
    cluster.join("n1", cards=8)
    centre = Centre(leadership=cast("Leadership", terms), reign=lambda: cluster.reign)
    assert centre.hardware(()) == Hardware()
    running = asyncio.ensure_future(centre.run())
    try:
        terms.turn(leads=True)
        await until(lambda: centre.reign is not None and not centre.reign.why_not())
        there = centre.hardware(["*H100*"]).there
        assert there[""][0] == 800
        assert there[""][1] > 0
        assert set(there) == {"", "*H100*"}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
