"""The agent's side of the door against a scripted endpoint: what it says, when, and when it says it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aliquot_core import door
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from support.endpoints import COMPUTE, ScriptedAgent, agent, settings_in, short_folder, table


class ScriptedEndpoint:
    """Listens at the door; a test reads and writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._visits: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        """Begin to listen."""
        self._path.parent.mkdir(exist_ok=True)
        self._server = await asyncio.start_unix_server(self._take, self._path)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._visits.put_nowait((reader, writer))

    async def visitor(self) -> Visit:
        """Wait for an agent."""
        return Visit(*await asyncio.wait_for(self._visits.get(), 60))

    async def close(self) -> None:
        """Listen no longer, and send everybody away."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


class Visit:
    """One agent at the door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, *messages: door.FromEndpoint) -> None:
        """Tell the agent something."""
        self._writer.write(b"".join(map(door.encode, messages)))

    async def hear(self) -> door.FromAgent:
        """Wait for what the agent says next."""
        (message,) = door.from_agent().feed(await asyncio.wait_for(self._reader.readline(), 60))
        return message

    def shut(self) -> None:
        """Send the agent away."""
        self._writer.close()


WELCOME = door.Welcome(endpoint="scripted")


@pytest.fixture
def settings() -> Iterator[EndpointSettings]:
    """Where the door is."""
    with short_folder() as folder:
        yield settings_in(folder)


@pytest.fixture
async def endpoint(settings: EndpointSettings) -> AsyncIterator[ScriptedEndpoint]:
    """An endpoint that listens."""
    made = ScriptedEndpoint(Path(settings.door))
    await made.open()
    yield made
    await made.close()


async def test_tells_the_table_once(settings: EndpointSettings, endpoint: ScriptedEndpoint) -> None:
    """Hello first; the table when it is welcome, and again only when it is another one."""
    async with agent(settings, ScriptedAgent()) as at_door:
        visit = await endpoint.visitor()
        assert await visit.hear() == door.Hello(agent="agent-1")
        at_door.publish({COMPUTE: table(gpus=3)})
        visit.say(WELCOME)
        assert await visit.hear() == door.Devices(resources={COMPUTE: table(gpus=3)})
        at_door.publish({COMPUTE: table(gpus=3)})
        at_door.publish({COMPUTE: table(gpus=1)})
        assert await visit.hear() == door.Devices(resources={COMPUTE: table(gpus=1)})
        visit.shut()


async def test_comes_back(settings: EndpointSettings, endpoint: ScriptedEndpoint) -> None:
    """Each new connection begins anew, and answers in the making end with the old one."""

    async def never(_call: door.PreStart) -> None:
        await asyncio.Event().wait()

    handler = ScriptedAgent(start=never)
    async with agent(settings, handler):
        for times in range(1, 3):
            visit = await endpoint.visitor()
            assert await visit.hear() == door.Hello(agent="agent-1")
            visit.say(WELCOME, door.PreStart(call=7, resource=COMPUTE, ids=["0-01"]))
            assert isinstance(await visit.hear(), door.Devices)
            await handler.until(lambda times=times: len(handler.starts) == times)  # type: ignore[misc]
            visit.shut()
            await handler.until(lambda times=times: handler.dropped == times)  # type: ignore[misc]


async def test_garbage_from_the_endpoint(settings: EndpointSettings, endpoint: ScriptedEndpoint) -> None:
    """An endpoint that breaks the protocol is left, and tried again."""
    async with agent(settings, ScriptedAgent()):
        for _ in range(2):
            visit = await endpoint.visitor()
            assert await visit.hear() == door.Hello(agent="agent-1")
            visit._writer.write(b"\xff\n")


async def test_answers_do_not_wait_for_each_other(settings: EndpointSettings, endpoint: ScriptedEndpoint) -> None:
    """A quick answer overtakes a slow one; a call that is forgotten is answered no more."""
    slow = asyncio.Event()

    async def decide(call: door.PreStart) -> str | None:
        if call.call == 1:
            await slow.wait()
        return f"no {call.call}"

    handler = ScriptedAgent(start=decide)
    async with agent(settings, handler):
        visit = await endpoint.visitor()
        await visit.hear()
        calls = [door.PreStart(call=number, resource=COMPUTE, ids=["0-01"]) for number in (1, 2)]
        visit.say(WELCOME, *calls)
        await visit.hear()
        assert await visit.hear() == door.Started(call=2, refused="no 2")
        visit.say(door.Forget(call=1), door.Forget(call=99))
        await handler.until(lambda: handler.dropped == 1)
        slow.set()
        visit.say(door.PreStart(call=3, resource=COMPUTE, ids=["0-01"]))
        assert await visit.hear() == door.Started(call=3, refused="no 3")
        visit.shut()
