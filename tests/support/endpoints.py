"""An endpoint, an agent and a scripted kubelet in a short folder, for tests over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec

from aliquot_agent.door import AgentDoor
from aliquot_core import door
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_deviceplugin.endpoint.folder_watch import FolderWatch
from aliquot_deviceplugin.endpoint.process import run_endpoint
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_kube.clock import SystemClock
from support.folders import lent_folder

NAMES = Names()
COMPUTE = NAMES.compute


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short path."""
    with lent_folder("aq-") as folder:
        yield folder


def settings_in(folder: Path, **changes: object) -> EndpointSettings:
    """Settings of production, but below a folder."""
    settings = EndpointSettings(
        plugin_folder=str(folder / "dp"),
        registry_folder=str(folder / "reg"),
        state_file=str(folder / "lib/endpoint.json"),
        door=str(folder / "run/door.sock"),
        takeover_patience=0.0,
    )
    return msgspec.structs.replace(settings, **changes)


def table(*, gpus: int = 2, slots: int = 100) -> list[door.Device]:
    """Ids as the agent makes them."""
    return [door.Device(id=f"{gpu}-{slot:02}") for gpu in range(gpus) for slot in range(slots)]


@contextlib.asynccontextmanager
async def endpoint(settings: EndpointSettings, *, clock: Clock | None = None) -> AsyncIterator[asyncio.Event]:
    """Run an endpoint; it must leave without an error."""
    stop, clock = asyncio.Event(), clock or SystemClock()
    running = asyncio.ensure_future(run_endpoint(settings, clock=clock, stop=stop, chance=random.random))
    try:
        yield stop
    finally:
        stop.set()
        await running


async def start_process(settings: EndpointSettings) -> asyncio.subprocess.Process:
    """Run `aliquot endpoint` with these settings."""
    given = {f"ALIQUOT_ENDPOINT_{name.upper()}": str(value) for name, value in msgspec.structs.asdict(settings).items()}
    command = [sys.executable, "-m", "aliquot_cli.main", "endpoint"]
    return await asyncio.create_subprocess_exec(*command, env={**os.environ, **given})


class ScriptedAgent:
    """Answers what a test says; records what it was asked."""

    def __init__(
        self,
        *,
        start: Callable[[door.PreStart], Awaitable[str | None]] | None = None,
        preference: Callable[[door.Prefer], Awaitable[list[str]]] | None = None,
    ) -> None:
        self._start = start
        self._preference = preference
        self.starts: list[door.PreStart] = []
        self.wishes: list[door.Prefer] = []
        self.dropped = 0
        self._asked = asyncio.Condition()

    async def may_start(self, call: door.PreStart) -> str | None:
        """Decide as the test says; yes by default."""
        self.starts.append(call)
        async with self._asked:
            self._asked.notify_all()
        try:
            return await self._start(call) if self._start else None
        except asyncio.CancelledError:
            self.dropped += 1
            async with self._asked:
                self._asked.notify_all()
            raise

    async def prefer(self, call: door.Prefer) -> list[str]:
        """Choose as the test says; nothing by default."""
        self.wishes.append(call)
        return await self._preference(call) if self._preference else []

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of what was asked."""
        async with asyncio.timeout(60), self._asked:
            await self._asked.wait_for(holds)


@contextlib.asynccontextmanager
async def agent(
    settings: EndpointSettings,
    handler: ScriptedAgent,
    *,
    name: str = "agent-1",
    resources: dict[str, list[door.Device]] | None = None,
) -> AsyncIterator[AgentDoor]:
    """Run an agent's side of the door; leaving kills it."""
    at_door = AgentDoor(path=settings.door, agent=name, handler=handler, clock=SystemClock(), random=random.random)
    at_door.publish({COMPUTE: table()} if resources is None else resources)
    running = asyncio.ensure_future(at_door.run())
    try:
        yield at_door
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def kubelet_known(at_door: AgentDoor, holds: Callable[[door.KubeletSeen], bool]) -> None:
    """Wait until the endpoint has told the agent so of the kubelet."""
    async with asyncio.timeout(60):
        while at_door.kubelet is None or not holds(at_door.kubelet):
            await at_door.changed.wait(clock=SystemClock(), at_most=5)


async def appears(path: Path, *, other_than: int | None = None) -> None:
    """Wait for a socket or file, made at another instant than this one."""
    watch = FolderWatch(path.parent, clock=SystemClock(), poll=0.01)
    async with asyncio.timeout(60):
        watch.arm()
        while made_at(path) in {None, other_than}:
            await watch.changed()
            watch.arm()
    watch.close()


def made_at(path: Path) -> int | None:
    """When a socket or file was made, if it is there."""
    return path.stat().st_ctime_ns if path.exists() else None


async def forever(_call: object) -> None:
    """Never answer."""
    await asyncio.Event().wait()
