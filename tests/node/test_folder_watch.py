"""The watch on the kubelet's folder: wakes when something happens, and only then."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot_deviceplugin.endpoint.folder_watch import FolderWatch
from support.clocks import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """Time that stands still."""
    return VirtualClock()


@pytest.fixture
async def watch(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[FolderWatch]:
    """A watch on a folder that is there."""
    folder = tmp_path / "dp"
    _make(folder)
    made = FolderWatch(folder, clock=clock, poll=0.05)
    made.arm()
    yield made
    made.close()


def _make(folder: Path) -> None:
    folder.mkdir()


async def expect_woken(watch: FolderWatch) -> None:
    """Wait for the watch to wake, in real time."""
    await asyncio.wait_for(watch.changed(), 60)


async def sleeps(watch: FolderWatch, clock: VirtualClock) -> bool:
    """Tell whether the watch still waits after all that happened was looked at."""
    waiting = asyncio.ensure_future(watch.changed())
    await clock.advance(0.9)
    asleep = not waiting.done()
    waiting.cancel()
    return asleep


async def test_wakes_once_for_what_happens(watch: FolderWatch, clock: VirtualClock, tmp_path: Path) -> None:
    """A file made or deleted wakes it, once each."""
    made = tmp_path / "dp/made"
    for change in (made.touch, made.unlink):
        assert await sleeps(watch, clock)
        change()
        await expect_woken(watch)


async def test_looks_now_and_then(watch: FolderWatch, clock: VirtualClock) -> None:
    """What nobody tells is looked at each second."""
    waiting = asyncio.ensure_future(watch.changed())
    await clock.advance(1.1)

    assert waiting.done()


async def test_folder_comes_later(tmp_path: Path, clock: VirtualClock) -> None:
    """A folder that is not there is polled for; once it is, it is watched."""
    folder = tmp_path / "later"
    watch = FolderWatch(folder, clock=clock, poll=0.05)
    watch.arm()
    polling = asyncio.ensure_future(watch.changed())
    await clock.advance(0.06)
    assert polling.done()
    _make(folder)
    watch.arm()

    assert await sleeps(watch, clock)
    (folder / "made").touch()
    await expect_woken(watch)
    watch.close()


async def test_folder_made_anew(watch: FolderWatch, tmp_path: Path) -> None:
    """A folder deleted and made again is watched again, though it may have the same number."""
    folder = tmp_path / "dp"
    shutil.rmtree(folder)
    await expect_woken(watch)
    _make(folder)
    watch.arm()
    (folder / "made").touch()
    await expect_woken(watch)


async def test_woken_by_hand(watch: FolderWatch, clock: VirtualClock) -> None:
    """Another reason to look ends the wait."""
    watch.wake()
    await expect_woken(watch)

    assert await sleeps(watch, clock)
