"""What the node's files refuse is said and tried again, and ends no keeper; whether it gets on is seen from outside."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aliquot_agent.isolation.gpu_modes import Told, Use
from aliquot_agent.isolation.mps_control import Answer, MpsControl, MpsError
from aliquot_agent.isolation.mps_folder import MpsFolder, MpsFolderError
from aliquot_agent.isolation.mps_keeper import GLANCE, LOOK, STUCK, MpsKeeper
from aliquot_kube.clock import SystemClock
from support.clocks import VirtualClock

GPU, OTHER = (f"GPU-00000000-0000-0000-0000-00000000000{end}" for end in "ab")


class Modes:
    """Compute modes of GPUs that are all closed; one may hang in the driver."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    def closed(self, gpu: str) -> bool:
        """Whether it takes one process only."""
        if gpu == GPU:
            self.answers.wait()
        return True

    def close(self, gpu: str, *, closed: bool) -> None:
        """Make it so."""


class Daemon:
    """One that is not there until it is started."""

    def __init__(self) -> None:
        self.lived = False

    async def start(self) -> None:
        """Start it."""
        self.lived = True

    async def ask(self) -> Answer | None:
        """How it is."""
        return Answer(servers=(), faulty=0, clients=0)

    async def quit(self) -> None:
        """End it."""

    def is_gone(self) -> bool:
        """Whether nothing is there of it."""
        return not self.lived

    def lives(self) -> bool:
        """Whether its process is there."""
        return self.lived

    def kill(self) -> None:
        """End it."""


class Kept:
    """A keeper that runs on a clock of the test's."""

    def __init__(self, root: Path) -> None:
        self.folder, self.clock, self.modes = MpsFolder(root), VirtualClock(), Modes()
        self.daemons = {GPU: Daemon(), OTHER: Daemon()}
        keeper = MpsKeeper(
            folder=self.folder,
            modes=self.modes,
            control=self.daemons.__getitem__,
            clock=self.clock,
            most_clients=48,
        )
        self.running = asyncio.ensure_future(keeper.run())

    async def until_shared(self, gpu: str) -> None:
        """Let time pass until containers may start there."""
        while self.folder.seat(gpu).told != Told(use=Use.SHARED, most_clients=48):
            await self.moved_on(GLANCE)

    async def moved_on(self, seconds: float) -> None:
        """Let time pass; what ended the keeper is raised."""
        await self.clock.advance(seconds)
        if self.running.done():
            self.running.result()

    async def is_seen(self) -> bool:
        """Whether it shows that it gets on."""
        self.folder.pulse().unlink(missing_ok=True)
        await self.moved_on(2 * GLANCE)
        return self.folder.pulse().exists()


@asynccontextmanager
async def keeping(root: Path) -> AsyncIterator[Kept]:
    """One that runs."""
    kept = Kept(root)
    try:
        yield kept
    finally:
        kept.modes.answers.set()
        kept.running.cancel()
        await asyncio.gather(kept.running, return_exceptions=True)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log has of troubles."""
    return [getattr(line, "problem", "") for line in caplog.records if line.getMessage() == "MPS daemons can't be kept"]


async def test_what_was_told_and_can_t_be_taken_back_is_said_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is changed on that GPU meanwhile, for containers may start there; others are seen to."""
    async with keeping(tmp_path) as kept:
        (tmp_path / GPU / "told").mkdir(parents=True)
        for gpu in (GPU, OTHER):
            kept.folder.want(gpu, Use.SHARED)
        await kept.until_shared(OTHER)
        while not said(caplog):
            await kept.moved_on(GLANCE)
        await kept.moved_on(5 * LOOK)
        (once,) = said(caplog)
        assert "what was told can't be taken back" in once
        assert (kept.daemons[GPU].lived, await kept.is_seen()) == (False, True)
        (tmp_path / GPU / "told").rmdir()
        await kept.until_shared(GPU)


async def test_a_folder_that_can_t_be_read_is_said_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it can, the keeper shows that it does not get on; with it, it goes on by itself."""
    root = tmp_path / "mps"
    root.symlink_to(root)
    async with keeping(root) as kept:
        await kept.moved_on(3 * LOOK)
        (once,) = said(caplog)
        assert "can't be read" in once
        root.unlink()
        kept.folder.want(GPU, Use.SHARED)
        await kept.until_shared(GPU)
        assert await kept.is_seen()


async def test_a_driver_that_never_answers_is_seen_from_outside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other GPUs are kept; that one's work has no end, and who asks after the keeper hears it."""
    async with keeping(tmp_path) as kept:
        kept.modes.answers.clear()
        for gpu in (GPU, OTHER):
            kept.folder.want(gpu, Use.SHARED)
        await kept.until_shared(OTHER)
        assert (await kept.is_seen(), said(caplog)) == (True, [])
        await kept.moved_on(STUCK)
        assert not await kept.is_seen()
        assert said(caplog) == [f"its driver has not answered for {STUCK:g} s"]
        kept.modes.answers.set()
        await kept.until_shared(GPU)
        assert await kept.is_seen()


def test_no_keeper_lives_where_what_an_earlier_one_told_can_t_be_taken_back(tmp_path: Path) -> None:
    """Containers would start by what no daemon stands behind; the place is free for who tries again."""
    folder = MpsFolder(tmp_path)
    (tmp_path / GPU / "told").mkdir(parents=True)
    with pytest.raises(MpsFolderError, match="taken back"):
        folder.hold()
    assert not folder.kept()
    (tmp_path / GPU / "told").rmdir()
    held = folder.hold()
    assert folder.kept()
    os.close(held)


async def test_what_the_system_refuses_one_gpu_is_said_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error that the keeper knows, whichever of a daemon's files or processes it is."""

    def control(pipe: Path) -> MpsControl:
        return MpsControl(program="true", gpu=GPU, pipe=pipe, log_folder=tmp_path, multi_user=True, clock=SystemClock())

    with pytest.raises(MpsError, match="can't be looked at"):
        control(tmp_path / ("long" * 100)).is_gone()
    (tmp_path / "start.out").mkdir()
    with pytest.raises(MpsError, match="can't be kept"):
        await control(tmp_path).start()

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    monkeypatch.setattr(MpsControl, "_left", lambda _: [1])
    with pytest.raises(MpsError, match="can't be ended"):
        control(tmp_path).kill()
