"""Commands of ours that run as child processes: started, started again when they die, ended with us.

Theory of operation. Each child has a task that waits for its end. One that dies by itself is started again: the centre,
endpoints and agents are made to be killed at any instant. One that dies again and again is a fault that a person must
see: `run` then raises, with the last that the child had to say. What must always hold: no child outlives this process,
however that ends, for the kernel kills it then; and none is started once `close` was called.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError

log = logging.getLogger(__name__)

# What a child has to leave in, where its command does not say otherwise.
LEAVE_WITHIN = 5.0
# So many deaths within so many seconds are no bad luck.
DEATHS, WITHIN = 4, 60.0
LAST_LINES = 8
# A log of ours that has grown so large is put aside when the next run begins.
_LARGE_LOG = 16 * 1024 * 1024
PARENT = "ALIQUOT_UP_PARENT"
# Asks the kernel to kill this process when its parent is gone, however that ended; 1 is PR_SET_PDEATHSIG. Killed, for
# without the API server there is nothing to leave in order. Not by a hook of fork: where gRPC has threads, its own
# handlers run in such a child, and 1 of 10 hung there before it began.
DIES_WITH_PARENT = f"""
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(os.environ.pop("{PARENT}")):
    sys.exit("the parent is gone")
from aliquot_cli.main import main
main(prog_name="aliquot")
"""


class ChildError(ClusterError):
    """A process of ours that does not stay alive."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command of ours, what it is called among its siblings, and its whole environment."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    # Told to leave, it is killed after so many seconds.
    leave_within: float = LEAVE_WITHIN


class Children:
    """All child processes of one `aliquot up`."""

    def __init__(self, *, logs: Path, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._leave_within: dict[str, float] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self, command: Command, *, before_again: Callable[[], Awaitable[None]] | None = None) -> None:
        """Start a child, and have it kept alive; `before_again` puts right what a dead one has left."""
        set_aside(self.log_of(command.name))
        self._leave_within[command.name] = command.leave_within
        await self._start(command)
        self._keepers[command.name] = asyncio.create_task(
            self._keep(command, before_again), name=f"keep {command.name}"
        )

    async def run(self) -> None:
        """Return never: raise when a child can't be kept alive."""
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """End all of them and wait."""
        for keeper in self._keepers.values():
            keeper.cancel()
        await asyncio.gather(*self._keepers.values(), return_exceptions=True)
        self._broken.cancel()
        await asyncio.gather(
            *(_ended(process, within=self._leave_within[name]) for name, process in self._processes.items())
        )

    def log_of(self, name: str) -> Path:
        """Where a child's log goes."""
        return self._logs / f"{name}.log"

    def pid(self, name: str) -> int:
        """The child's process id now."""
        return self._processes[name].pid

    async def _start(self, command: Command) -> None:
        with self.log_of(command.name).open("ab") as output:
            self._processes[command.name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                DIES_WITH_PARENT,
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**command.environment, PARENT: str(os.getpid())},
                # Ctrl-C at a terminal is for us; we tell the children in their turn.
                start_new_session=True,
            )

    async def _keep(self, command: Command, before_again: Callable[[], Awaitable[None]] | None) -> None:
        deaths: deque[float] = deque(maxlen=DEATHS)
        while True:
            code = await self._processes[command.name].wait()
            deaths.append(self._clock.monotonic())
            log.error("a process has ended by itself", extra={"child": command.name, "code": code})
            if len(deaths) == DEATHS and deaths[-1] - deaths[0] < WITHIN:
                self._give_up(command.name)
                return
            # The first time at once, then with more and more patience.
            await self._clock.sleep(float(len(deaths) - 1))
            if before_again is not None:
                await before_again()
            await self._start(command)

    def _give_up(self, name: str) -> None:
        last = self.log_of(name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        lines = "\n  ".join([f"the {name} has ended by itself {DEATHS} times in a row; its last lines:", *last])
        if not self._broken.done():
            self._broken.set_exception(ChildError(lines))


def set_aside(log_file: Path) -> None:
    """Begin a new log where the old one is large; the one before that goes."""
    with contextlib.suppress(FileNotFoundError):
        if log_file.stat().st_size > _LARGE_LOG:
            log_file.replace(log_file.with_suffix(".log.old"))


async def _ended(process: asyncio.subprocess.Process, *, within: float) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(within):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
