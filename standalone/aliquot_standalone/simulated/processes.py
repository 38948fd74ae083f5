"""Containers that are only waited for: the simulated side of the process runtime."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable
from pathlib import Path

from aliquot_core.clock import Clock
from aliquot_kube.pacing import sleep_unless
from aliquot_standalone.kubelet.containers import Ended, Launch
from aliquot_standalone.kubelet.errors import ProcessError
from aliquot_standalone.kubelet.lifecycle import Process
from aliquot_standalone.simulated.loads import Load

_BY_SIGNAL = 128


class _Played:
    """One container that runs, as far as anybody can tell."""

    def __init__(self, *, load: Load, since: float) -> None:
        self.load = load
        self.ends_at = None if load.seconds is None else since + load.seconds
        self.code = load.code
        self.stirred = asyncio.Event()

    def end(self, *, at: float, code: int) -> None:
        if self.ends_at is None or at < self.ends_at:
            self.ends_at, self.code = at, code
            self.stirred.set()


class PlayedProcesses:
    """All containers of one simulated node."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._played: dict[str, _Played] = {}
        # Told of each container that has ended.
        self.ended: Callable[[str], None] = lambda _: None

    def play(self, *, name: str, load: Load, since: float | None = None) -> Process:
        """Begin to run a container; `since` for one that an earlier run of ours began."""
        now = self._clock.wall()
        self._played[name] = _Played(load=load, since=now if since is None else since)
        return Process(id=name, pid=next(self._numbers), born="simulated")

    def start(self, launch: Launch) -> Process:
        """Nothing is launched here: simulated nodes run no commands."""
        raise ProcessError("a simulated node runs no commands", where=launch.id)

    def find(self, container: str) -> Process | None:  # noqa: ARG002 - a runtime's signature
        """Nothing outlives the process that simulates it."""
        return None

    async def wait(self, process: Process, exit_file: Path) -> Ended:  # noqa: ARG002 - a runtime's signature
        """Wait until the container's time is over."""
        played = self._played[process.id]
        while played.ends_at is None or played.ends_at > self._clock.wall():
            left = None if played.ends_at is None else played.ends_at - self._clock.wall()
            await sleep_unless(clock=self._clock, seconds=left, woken=played.stirred)
        del self._played[process.id]
        self.ended(process.id)
        return Ended(played.code, "Completed" if played.code == 0 else "Error")

    def signal(self, process: Process, number: int) -> None:
        """Let it end: at once when it is killed, in its own time when it is asked to."""
        if (played := self._played.get(process.id)) is not None:
            pause = 0.0 if number == signal.SIGKILL else played.load.stop
            played.end(at=self._clock.wall() + pause, code=_BY_SIGNAL + number)

    def crash(self, name: str, *, code: int = 1) -> None:
        """Let a container end with an error of its own."""
        if (played := self._played.get(name)) is not None:
            played.end(at=self._clock.wall(), code=code)
