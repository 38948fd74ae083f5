"""A daemon that does not answer is replaced after the time that is stated, and holds up no other GPU."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aliquot_agent.isolation.gpu_modes import Told, Use, hindrance
from aliquot_agent.isolation.mps_control import Answer
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.mps_keeper import GLANCE, SILENCE, MpsKeeper
from aliquot_core.clock import Clock
from aliquot_kube.clock import SystemClock
from support.clocks import VirtualClock

HUNG, ALSO_HUNG, WELL = (f"GPU-00000000-0000-0000-0000-00000000000{end}" for end in "abc")


class Modes:
    """Compute modes."""

    def __init__(self) -> None:
        self.shut: set[str] = set()

    def closed(self, gpu: str) -> bool:
        """Whether it takes one process only."""
        return gpu in self.shut

    def close(self, gpu: str, *, closed: bool) -> None:
        """Make it so."""
        (self.shut.add if closed else self.shut.discard)(gpu)


class Daemon:
    """One that is there from the beginning; asked, it says nothing for so long and then fails, or answers at once."""

    def __init__(self, clock: Clock, *, silent_for: float | None) -> None:
        self._clock = clock
        self._silent_for = silent_for
        self._lives = True
        self.asked = asyncio.Event()
        self.killed_at: list[float] = []

    async def start(self) -> None:
        """Start one that answers."""
        self._lives, self._silent_for = True, None

    async def ask(self) -> Answer | None:
        """How it is."""
        self.asked.set()
        if self._silent_for is None:
            return Answer(servers=(), faulty=0, clients=0)
        if self._silent_for == float("inf"):
            await asyncio.Event().wait()
        if self._lives:
            await self._clock.sleep(self._silent_for)
        return None

    async def quit(self) -> None:
        """End it."""
        self._lives = False

    def is_gone(self) -> bool:
        """Whether nothing is there of it."""
        return not self._lives

    def lives(self) -> bool:
        """Whether its process is there."""
        return self._lives

    def kill(self) -> None:
        """End it."""
        self._lives = False
        self.killed_at.append(self._clock.monotonic())


def keeper_of(daemons: dict[str, Daemon], *, folder: MpsFolder, clock: Clock, silence: float = SILENCE) -> MpsKeeper:
    """A keeper of GPUs that are all to be shared."""
    modes = Modes()
    for gpu in daemons:
        folder.want(gpu, Use.SHARED)
        modes.close(gpu, closed=True)
    return MpsKeeper(
        folder=folder, modes=modes, control=daemons.__getitem__, clock=clock, most_clients=48, silence=silence
    )


@asynccontextmanager
async def running(keeper: MpsKeeper) -> AsyncIterator[None]:
    """Let it keep; what it fails by is raised."""
    keeping = asyncio.ensure_future(keeper.run())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


@pytest.mark.parametrize("silent_for", [0.0, 3.0, 9.9, 20.0, float("inf")])
async def test_silence_lasts_as_long_as_is_stated(silent_for: float, tmp_path: Path) -> None:
    """However long the program is waited for by itself: what hangs is cut off when the time is over, not later."""
    clock, folder = VirtualClock(), MpsFolder(tmp_path)
    daemon = Daemon(clock, silent_for=silent_for)
    settling = asyncio.ensure_future(keeper_of({HUNG: daemon}, folder=folder, clock=clock).settle(HUNG))
    await daemon.asked.wait()
    while not settling.done():
        await clock.advance(GLANCE / 2)
    assert SILENCE <= daemon.killed_at[0] <= SILENCE + GLANCE
    assert folder.seat(HUNG).told == Told(use=Use.SHARED, most_clients=48)


async def test_who_waits_for_two_daemons_sees_to_the_third(tmp_path: Path) -> None:
    """A wish for it is carried out while both are silent still, for each GPU has a task of its own."""
    clock, folder = SystemClock(), MpsFolder(tmp_path)
    hung = {gpu: Daemon(clock, silent_for=float("inf")) for gpu in (HUNG, ALSO_HUNG)}
    daemons = hung | {WELL: Daemon(clock, silent_for=None)}
    keeper, held = keeper_of(daemons, folder=folder, clock=clock, silence=3600.0), folder.hold()
    async with running(keeper):
        for daemon in hung.values():
            await daemon.asked.wait()
        for use in (Use.EXCLUSIVE, Use.SHARED):
            folder.want(WELL, use)
            while hindrance(folder.seat(WELL), use=use):
                await clock.sleep(0.02)
    assert [daemon.killed_at for daemon in hung.values()] == [[], []]
    os.close(held)
