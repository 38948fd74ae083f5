"""The simulation itself: the same seed is the same run, and nothing in it reaches outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from aliquot_kube.clock import SystemClock
from simulation.universe import guard
from simulation.universe.life import Killed, Life, make_task
from simulation.universe.loop import OutsideError, Pipe, StuckError, VirtualLoop
from simulation.universe.town import Town, TownScale
from simulation.universe.world import Scale, World

SHORT = Scale(seconds=60.0)
_TESTS = Path(__file__).parent.parent
_DIGEST = """
import logging, sys
logging.disable(logging.CRITICAL)
sys.path.insert(0, sys.argv[1])
from simulation.universe.town import Town, TownScale
from simulation.universe.world import Scale, World
for run in (World(3, Scale(seconds=60.0)), Town(3, TownScale(seconds=60.0))):
    run.run()
    print(run.digest)
"""


def digest_in_another_process(hash_seed: str) -> str:
    """What a run tells in a process that orders its sets differently."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _DIGEST, str(_TESTS)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.timeout(120)
def test_a_seed_repeats_its_run_to_the_last_step() -> None:
    """Also in a process whose sets have another order: or a seed would be no bug report."""
    runs: tuple[World, Town] = (World(3, SHORT), Town(3, TownScale(seconds=60.0)))
    runs[0].run()
    runs[1].run()
    told = "\n".join(run.digest for run in runs)
    assert {digest_in_another_process("1"), digest_in_another_process("2")} == {told}


def test_seeds_differ() -> None:
    """Otherwise a thousand of them would be one."""
    worlds = [World(seed, SHORT) for seed in (1, 2)]
    for world in worlds:
        world.run()
    assert worlds[0].digest != worlds[1].digest


def test_time_passes_only_when_nobody_can_go_on() -> None:
    """A week of sleep takes no time, and wakes in order."""
    loop = VirtualLoop()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(f"{name} at {loop.time():g}")

    async def main() -> None:
        await asyncio.gather(sleeper("late", 604_800.0), sleeper("early", 1.0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60.0):
                await asyncio.Event().wait()

    loop.run(main())
    assert woken == ["early at 1", "late at 604800"]


def test_a_simulation_that_stands_still_says_so() -> None:
    """Whoever waits for what never comes, and whoever spins, ends the run instead of hanging it."""

    async def waits() -> None:
        await asyncio.Event().wait()

    async def spins() -> None:
        while True:  # noqa: ASYNC110 - spinning is what is tried
            await asyncio.sleep(0)

    for hang in (waits, spins):
        with pytest.raises(StuckError):
            VirtualLoop().run(hang())


async def _open_a_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def _open_another_socket() -> None:
    await asyncio.open_unix_connection("/nobody/listens")


async def _take_a_thread() -> None:
    await asyncio.to_thread(time.sleep, 0)


async def _start_a_thread() -> None:
    threading.Thread(target=print).start()


async def _ask_the_real_clock() -> None:
    SystemClock().monotonic()


@pytest.mark.parametrize(
    ("reach", "refusal"),
    [
        (_open_a_connection, (OutsideError, NotImplementedError)),
        (_open_another_socket, ConnectionRefusedError),
        (_take_a_thread, OutsideError),
        (_start_a_thread, OutsideError),
        (_ask_the_real_clock, OutsideError),
    ],
)
def test_nothing_reaches_outside(reach: Callable[[], Coroutine[Any, Any, None]], refusal: type[BaseException]) -> None:
    """Real time, threads and sockets would make a run differ from its repetition."""
    with guard.no_outside(), pytest.raises(refusal):
        VirtualLoop().run(reach())


def test_a_process_may_die_at_any_of_its_steps() -> None:
    """Each turn of its tasks and each of its acts is a step; after death it does nothing more."""
    done: list[list[str]] = []
    for step in range(1, 8):
        loop = VirtualLoop()
        loop.set_task_factory(make_task)
        life = Life(loop, die_at=step)
        acts: list[str] = []

        async def work(life: Life = life, acts: list[str] = acts) -> None:
            for name in ("one", "two", "three"):
                life.act(name)
                acts.append(name)
                await asyncio.sleep(1.0)

        async def main(life: Life = life) -> None:
            life.begin(work)
            await asyncio.wait([life.died], timeout=60.0)
            await asyncio.sleep(60.0)

        loop.run(main())
        done.append(acts)
        assert not life.tasks
    one, two, three = ["one"], ["one", "two"], ["one", "two", "three"]
    assert done == [[], one, one, two, two, three, three]


def test_what_the_dead_have_sent_arrives() -> None:
    """A kernel delivers what a killed process has written, and then the end of the connection."""
    loop = VirtualLoop()
    loop.set_task_factory(make_task)
    life = Life(loop)
    heard: list[bytes] = []

    class Listener(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            heard.append(data)

        def connection_lost(self, exc: Exception | None) -> None:
            heard.append(b"" if exc is None else str(exc).encode())

    async def work() -> None:
        _, writer = await asyncio.open_unix_connection("/here")
        writer.write(b"last words")
        life.kill()
        writer.write(b"from beyond")
        with pytest.raises(Killed):
            life.act("write")

    async def main() -> None:
        loop.listeners["/here"] = Listener
        life.begin(work)
        await asyncio.sleep(1.0)

    loop.run(main())
    assert heard == [b"last words", b""]
    assert issubclass(Pipe, asyncio.Transport)
