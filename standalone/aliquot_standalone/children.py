"""Commands of ours that run as child processes: started, started again when they die, ended with us.

Theory of operation. Each child has a task that waits for its end. One that dies by itself is started again: the centre,
endpoints and agents are made to be killed at any instant, and the terminal is told how it ended. One that says of
itself whether it is well is asked: where it has not answered for long it is killed, which starts it again. One that
dies again and again is a fault that a person must see: `run` then raises, with the last that the child had to say. What
must always hold: no child outlives this process, however that ends, for the kernel kills it then; and none is started
once `close` was called.
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
from aliquot_standalone.probing import NobodyThereError, is_well

log = logging.getLogger(__name__)

# What a child has to leave in, where its command does not say otherwise.
LEAVE_WITHIN = 5.0
# So many deaths within so many seconds are no bad luck.
DEATHS, WITHIN = 4, 60.0
LAST_LINES = 8
# How often each is asked whether it is well. Of one that is not the terminal is told at the second answer that fails;
# it is killed after so many seconds, which are so many that nobody dies too often for it, and none of a busy machine.
_ASK_EVERY, _TOLD, _UNWELL = 2.0, 2, 30.0
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
    # The port of its `/healthz`; 0 where it has none.
    health: int = 0


class Children:
    """All child processes of one `aliquot up`."""

    def __init__(self, *, logs: Path, clock: Clock, say: Callable[[str], None]) -> None:
        """`say` tells whoever looks on how one has ended, and that one does not answer."""
        self._logs = logs
        self._clock = clock
        self._say = say
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._leave_within: dict[str, float] = {}
        # How long each log was when the process that lives, or died last, was started.
        self._begins: dict[str, int] = {}
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
            self._begins[command.name] = output.tell()
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
            how = await self._ending(command)
            deaths.append(self._clock.monotonic())
            log.error("a process has ended by itself", extra={"child": command.name, "how": how})
            if len(deaths) == DEATHS and deaths[-1] - deaths[0] < WITHIN:
                self._give_up(command.name, how=how)
                return
            self._say(f"the {command.name} {how}, and is started again; its log is {self.log_of(command.name)}")
            # The first time at once, then with more and more patience.
            await self._clock.sleep(float(len(deaths) - 1))
            if before_again is not None:
                await before_again()
            await self._start(command)

    async def _ending(self, command: Command) -> str:
        """Wait for its end, and say how it ended."""
        process = self._processes[command.name]
        ending = asyncio.ensure_future(process.wait())
        asking = asyncio.ensure_future(self._until_unwell(command))
        try:
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return how_it_ended(ending.result())
            process.kill()
            await ending
            return f"did not answer for {_UNWELL:g} s, was killed"
        finally:
            asking.cancel()
            ending.cancel()
            await asyncio.gather(asking, ending, return_exceptions=True)

    async def _until_unwell(self, command: Command) -> None:
        """Return never where it can't be asked."""
        if not command.health:
            await asyncio.get_running_loop().create_future()
        failed, since = 0, 0.0
        while True:
            await self._clock.sleep(_ASK_EVERY)
            asked = self._clock.monotonic()
            if await _is_unwell(command):
                failed, since = failed + 1, since if failed else asked
                if failed == _TOLD:
                    self._say(f"the {command.name} does not answer; its log is {self.log_of(command.name)}")
                if failed > _TOLD and self._clock.monotonic() - since >= _UNWELL:
                    return
            else:
                if failed >= _TOLD:
                    self._say(f"the {command.name} answers again")
                failed = 0

    def _give_up(self, name: str, *, how: str) -> None:
        with self.log_of(name).open("rb") as output:
            output.seek(self._begins[name])
            last = output.read().decode(errors="replace").splitlines()[-LAST_LINES:]
        told = f"the {name} has ended by itself {DEATHS} times in a row; the last time it {how}"
        lines = "\n  ".join([f"{told}, and these were its last lines:", *last]) if last else told
        if not self._broken.done():
            self._broken.set_exception(ChildError(lines))


async def _is_unwell(command: Command) -> bool:
    """Who does not listen yet is on the way."""
    try:
        return not await is_well(command.health, "/healthz")
    except NobodyThereError:
        return False


def how_it_ended(code: int) -> str:
    """Say it of a process that nobody told to end: as one says it of somebody."""
    if code >= 0:
        return f"ended with exit code {code}"
    # Of whom the kernel ends for memory its own log has not a word.
    doubt = " (out of memory? see dmesg)" if -code == signal.SIGKILL else ""
    return f"was killed by signal {-code}{doubt}"


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
