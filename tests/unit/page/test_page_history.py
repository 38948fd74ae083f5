"""The history: what lies between two looks, and no more points than were asked for."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from aliquot_core.names import Names
from aliquot_scheduler.page.history import History
from aliquot_scheduler.page.history_file import KEEP_EVERY, HistoryFile
from aliquot_scheduler.page.hub import Hub
from aliquot_scheduler.page.model import State, Totals
from aliquot_scheduler.page.settings import PageSettings
from support.clocks import VirtualClock
from support.page_stage import PageStage, until


def state(at: float, **totals: Any) -> State:
    """A look at an instant."""
    return State(at=at, totals=Totals(**totals))


def test_parts_are_of_all_there_is() -> None:
    """Use that is not known has no point, and a cluster without GPUs divides by nothing."""
    history = History(points=10)
    history.add(state(1.0, compute=400, compute_granted=100, memory=1000, memory_granted=250, memory_used=100))
    history.add(state(2.0))
    first, second = history.since()
    assert (first.compute_granted, first.compute_used) == (0.25, None)
    assert (first.memory_granted, first.memory_used) == (0.25, 0.1)
    assert second.compute_granted == 0.0


def test_counts_are_of_the_time_between() -> None:
    """All of a reign's points together are what its leader has counted; the next reign counts from nothing."""
    history = History(points=10)
    for at, let_in, waited, others in ((1, 10, 100.0, 3), (2, 12, 130.0, 4), (3, 12, 130.0, 4)):
        history.add(state(at, let_in=let_in, waited=waited, evicted=others, evicted_for={"for others": others}))
    history.counted_anew()
    history.add(state(4, let_in=13, waited=135.0, evicted=6, evicted_for={"for others": 5, "for over-use": 1}))
    points = history.since()
    assert [(one.wait and round(one.wait, 1), one.evicted) for one in points] == [
        (10.0, 3),
        (15.0, 1),
        (None, 0),
        (10.4, 6),
    ]
    assert [one.evicted_for for one in points] == [
        {"for others": 3},
        {"for others": 1},
        {},
        {"for others": 5, "for over-use": 1},
    ]


def test_old_points_go() -> None:
    """The ring keeps the last ones, and tells those after an instant."""
    history = History(points=3)
    for at in range(10):
        history.add(state(float(at)))
    assert [one.at for one in history.since()] == [7.0, 8.0, 9.0]
    assert [one.at for one in history.since(8.0)] == [9.0]


def test_what_was_kept_comes_before_what_is_new() -> None:
    """In order and within the ring; what a clock that was ahead has written is not of the past."""
    kept, history = History(points=10), History(points=4)
    for at in (3, 1, 2, 50, 8):
        kept.add(state(float(at)))
    history.add(state(7.0))
    history.restore(kept.since(), now=9.0)
    assert [one.at for one in history.since()] == [1.0, 2.0, 3.0, 7.0]
    fresh = History(points=4)
    fresh.restore(kept.since(), now=9.0)
    assert [one.at for one in fresh.since()] == [1.0, 2.0, 3.0, 8.0]


def test_a_history_is_kept_in_a_file(tmp_path: Path) -> None:
    """As it was, to the last point; nothing is left beside it."""
    history, file = History(points=10), HistoryFile(str(tmp_path / "history"))
    history.add(state(1.0, compute=400, compute_granted=100, let_in=1, waited=1.0))
    history.add(state(2.0, let_in=3, waited=4.0, memory=1, memory_used=1))
    assert file.read() == []
    file.write(history.since())
    assert file.read() == history.since()
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


@pytest.mark.parametrize("content", [b"", b"[{", b"{}", b'[{"at": "x"}]', b"\xff"])
def test_a_file_that_can_not_be_read_is_no_history(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and the page begins anew."""
    (tmp_path / "history").write_bytes(content)
    assert HistoryFile(str(tmp_path / "history")).read() == []
    assert "can't be read" in caplog.text


@pytest.mark.parametrize("path", ["", "/proc/none/history", "\0"])
def test_where_nothing_can_be_kept_nothing_is_stopped(path: str) -> None:
    """No file was named, or there is no room for it."""
    history, file = History(points=10), HistoryFile(path)
    history.add(state(1.0))
    file.write(history.since())
    assert file.read() == []


async def test_the_page_goes_on_with_the_history_of_the_one_before(tmp_path: Path) -> None:
    """Written each minute, and when it ends."""
    clock, path = VirtualClock(), tmp_path / "history"
    stage, settings = PageStage(), PageSettings(every=1.0, sample=10.0, history=str(path))

    def new_hub() -> Hub:
        return Hub(
            sight=lambda: stage.seen(clock=clock), usage=stage.told, clock=clock, names=Names(), settings=settings
        )

    async def written() -> bool:
        return path.exists()

    async with contextlib.AsyncExitStack() as stack:
        first = await _running(new_hub(), stack)
        await clock.advance(KEEP_EVERY + 2.0)
        await until(written)
        # What comes after that is written at the end.
        while len(first.history.since()) < 9:
            await clock.advance(1.0)
            await asyncio.sleep(0)
        told = first.history.since()
        assert len(HistoryFile(str(path)).read()) < len(told)
    second = new_hub()
    async with contextlib.AsyncExitStack() as stack:
        await _running(second, stack)
        await clock.advance(1.0)
        assert second.history.since()[: len(told)] == told


async def test_a_new_reign_counts_from_nothing() -> None:
    """Its first evictions are told in full, however many its predecessor had counted."""
    clock, reigns = VirtualClock(), [PageStage()]
    reigns[0].evicted["for others"] = 5
    settings = PageSettings(every=1.0, sample=1.0)
    hub = Hub(
        sight=lambda: reigns[-1].seen(clock=clock),
        usage=reigns[0].told,
        clock=clock,
        names=Names(),
        settings=settings,
    )

    async def more(points: int) -> None:
        async with asyncio.timeout(60):
            while len(hub.history.since()) < points:
                await clock.advance(0.5)
                await asyncio.sleep(0)

    async with contextlib.AsyncExitStack() as stack:
        await _running(hub, stack)
        await more(1)
        reigns.append(PageStage())
        reigns[-1].evicted["for others"] = 7
        before = len(hub.history.since())
        await more(before + 2)
        assert [one.evicted for one in hub.history.since() if one.evicted] == [5, 7]


async def _running(hub: Hub, stack: contextlib.AsyncExitStack) -> Hub:
    task = asyncio.create_task(hub.run())

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
    return hub
