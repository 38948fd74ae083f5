"""The door between endpoint and agent, with visitors of all kinds."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot_agent.door import DoorRefusedError
from aliquot_core import door
from aliquot_deviceplugin.endpoint import door_server
from aliquot_deviceplugin.endpoint.process import run_endpoint
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_deviceplugin.endpoint.state import read
from aliquot_kube.clock import SystemClock
from support.endpoints import (
    COMPUTE,
    ScriptedAgent,
    agent,
    appears,
    endpoint,
    kubelet_known,
    settings_in,
    table,
)


@pytest.fixture
async def settings(folder: Path) -> AsyncIterator[EndpointSettings]:
    """A node with an endpoint, without a kubelet."""
    settings = settings_in(folder)
    async with endpoint(settings):
        yield settings


class Visitor:
    """Says whatever a test wants at the door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def at(cls, settings: EndpointSettings) -> Visitor:
        """Knock."""
        return cls(*await asyncio.open_unix_connection(settings.door))

    def say(self, raw: bytes) -> None:
        """Send bytes."""
        self._writer.write(raw)

    async def hear(self) -> door.FromEndpoint:
        """Wait for one message."""
        (message,) = door.from_endpoint().feed(await asyncio.wait_for(self._reader.readline(), 60))
        return message

    async def hear_the_end(self) -> list[door.FromEndpoint]:
        """Return all that is said until the door is shut, and go."""
        said = list(door.from_endpoint().feed(await asyncio.wait_for(self._reader.read(), 60)))
        self._writer.close()
        return said


HELLO = door.encode(door.Hello(agent="visitor"))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\xff\xfe\n", id="no text"),
        pytest.param(door.encode(door.Started(call=1)), id="an answer before Hello"),
        pytest.param(HELLO + HELLO, id="Hello twice"),
        pytest.param(HELLO + b'{"say":"sing"}\n', id="an unknown word"),
        pytest.param(HELLO + b'{"say":"devices","resources":{"aliquot.dev/compute":[{"id":1}]}}\n', id="a wrong type"),
        pytest.param(b"x" * (door.LONGEST_LINE + 100_000), id="an endless line"),
    ],
)
async def test_garbage(settings: EndpointSettings, words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever breaks the protocol is disconnected with a line in the log, and an agent can come right after."""
    visitor = await Visitor.at(settings)
    with caplog.at_level(logging.WARNING):
        visitor.say(words)
        await visitor.hear_the_end()

    assert "a visitor at the door is sent away" in caplog.text
    async with agent(settings, ScriptedAgent()) as at_door:
        await kubelet_known(at_door, lambda seen: seen.listening == [])


async def test_second_agent(settings: EndpointSettings) -> None:
    """A second agent is told who is there, says so and leaves; the first stays."""
    async with agent(settings, ScriptedAgent()) as first:
        await kubelet_known(first, lambda _: True)
        async with agent(settings, ScriptedAgent(), name="agent-2") as second:
            with pytest.raises(DoorRefusedError, match="agent-1 is connected already"):
                await second.run()
        assert first.kubelet is not None
    async with agent(settings, ScriptedAgent(), name="agent-2") as second:
        await kubelet_known(second, lambda _: True)


async def test_other_protocol(settings: EndpointSettings) -> None:
    """An agent of another protocol is refused with both numbers, whatever else it says of itself."""
    visitor = await Visitor.at(settings)
    visitor.say(b'{"say":"hello","agent":"future","protocol":2,"colour":"blue"}\n')

    (reply,) = await visitor.hear_the_end()
    assert isinstance(reply, door.Refused)
    assert "protocol 2, this endpoint 1" in reply.reason


async def test_mute_visitor(settings: EndpointSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that says nothing keeps no agent out, and is closed before long."""
    monkeypatch.setattr(door_server, "HELLO_PATIENCE", 0.2)
    mute = await Visitor.at(settings)
    async with agent(settings, ScriptedAgent()) as at_door:
        await kubelet_known(at_door, lambda _: True)

    assert await mute.hear_the_end() == []


async def test_bytes_one_at_a_time(settings: EndpointSettings) -> None:
    """A message may come in pieces, and several in one piece."""
    visitor = await Visitor.at(settings)
    for byte in HELLO[:-1]:
        visitor.say(bytes([byte]))
        await asyncio.sleep(0)
    visitor.say(HELLO[-1:] + door.encode(door.Devices(resources={COMPUTE: table()})))

    assert isinstance(await visitor.hear(), door.Welcome)
    visitor.say(b"bye\n")
    await visitor.hear_the_end()


async def test_only_root_may_enter(settings: EndpointSettings) -> None:
    """Folder and socket are closed to everybody else."""
    path = Path(settings.door)

    assert [oct(place.stat().st_mode & 0o777) for place in (path.parent, path)] == ["0o700", "0o600"]


async def test_stale_socket(folder: Path) -> None:
    """A socket that a killed endpoint left behind is replaced."""
    settings = settings_in(folder)
    path = Path(settings.door)
    _leave_socket(path)
    async with endpoint(settings), agent(settings, ScriptedAgent()) as at_door:
        await kubelet_known(at_door, lambda _: True)

    assert not path.exists()  # noqa: ASYNC240 - a test may wait for a disk


def _leave_socket(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


async def test_agent_before_the_endpoint(folder: Path) -> None:
    """An agent that starts first, or whose endpoint is replaced, finds it; each endpoint hears the table."""
    settings = settings_in(folder)
    async with agent(settings, ScriptedAgent()) as at_door:
        for _ in range(2):
            async with endpoint(settings):
                await kubelet_known(at_door, lambda _: True)
            async with asyncio.timeout(60):
                while at_door.kubelet is not None:
                    await at_door.changed.wait(clock=SystemClock(), at_most=5)
            heard = read(Path(settings.state_file))
            assert heard is not None
            assert heard.tables == {COMPUTE: table()}
            Path(settings.state_file).unlink()  # noqa: ASYNC240 - a test may wait for a disk


async def test_agent_that_does_not_read(settings: EndpointSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that leaves everything unread is disconnected, so that its successor can come."""
    monkeypatch.setattr(door_server, "MOST_UNREAD", -1)
    deaf = await Visitor.at(settings)
    deaf.say(HELLO)
    await deaf.hear_the_end()
    monkeypatch.undo()

    async with agent(settings, ScriptedAgent()) as at_door:
        await kubelet_known(at_door, lambda _: True)
        assert at_door.kubelet is not None


async def test_the_door_s_folder_stays_as_it_is(folder: Path) -> None:
    """It may be `/run`: closing that to everybody else would stop half the node."""
    shared = folder / "run"
    shared.mkdir()
    shared.chmod(0o755)
    settings = settings_in(folder)
    async with endpoint(settings):
        await appears(Path(settings.door))
        assert oct(shared.stat().st_mode & 0o777) == "0o755"


async def test_a_file_in_the_door_s_place_is_not_deleted(folder: Path) -> None:
    """A setting that points at something else is an error, and that something stays."""
    settings = settings_in(folder)
    Path(settings.door).parent.mkdir()
    descriptor = os.open(settings.door, os.O_CREAT | os.O_RDWR)
    with pytest.raises(door_server.DoorUnusableError, match="is no socket"):
        await run_endpoint(settings, clock=SystemClock(), stop=asyncio.Event(), chance=random.random)
    assert os.fstat(descriptor).st_nlink == 1
    os.close(descriptor)
