"""The endpoint's side of the door: listens for the agent, one at a time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from aliquot_agent.waiting import settled
from aliquot_core import door
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError

log = logging.getLogger(__name__)

# An agent says Hello as its first breath; who stays mute so long is none.
HELLO_PATIENCE = 5.0
# A hundred calls of 800 ids take 0.8 MB: an agent that leaves ten times that unread does not read at all.
MOST_UNREAD = 8 * 1024 * 1024
_CHUNK = 64 * 1024


class DoorUnusableError(ClusterError):
    """The door's socket can't be made."""


def receive(hello: door.Hello, *, present: str | None, endpoint: str) -> door.Welcome | door.Refused:
    """Decide whether an agent may come in."""
    if hello.protocol != door.PROTOCOL:
        return door.Refused(reason=f"it speaks protocol {hello.protocol}, this endpoint {door.PROTOCOL}")
    if present is not None:
        return door.Refused(reason=f"agent {present} is connected already, and a node has one")
    return door.Welcome(endpoint=endpoint)


class DoorServer:
    """Takes agents in, hands their words on, and carries ours."""

    def __init__(
        self,
        *,
        path: Path,
        endpoint: str,
        clock: Clock,
        on_agent: Callable[[str, Callable[[door.FromEndpoint], None]], None],
        on_message: Callable[[door.Devices | door.Started | door.Preference], None],
        on_agent_gone: Callable[[], None],
    ) -> None:
        """`on_agent` gets the agent's name and the way to speak to it."""
        self._path = path
        self._endpoint = endpoint
        self._clock = clock
        self._on_agent = on_agent
        self._on_message = on_message
        self._on_agent_gone = on_agent_gone
        self._present: str | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; a socket that a killed endpoint left behind is replaced."""
        try:
            listening = _listen(self._path)
        except OSError as error:
            raise DoorUnusableError(
                f"can't listen: {error}", where=str(self._path), remedy="set endpoint.door to a path we may write"
            ) from error
        self._server = await asyncio.start_unix_server(self._visit, sock=listening)

    async def close(self) -> None:
        """Let the agent go, and listen no longer."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this as a task of its own
        self._visits.add(task)
        try:
            await self._talk(reader, writer)
        except door.DoorError as error:
            log.warning("a visitor at the door is sent away: %s", error)
        except OSError as error:
            log.info("a connection at the door broke: %s", error)
        except asyncio.CancelledError:
            log.debug("the door closes")
        finally:
            self._visits.discard(task)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = door.from_agent()
        words = await self._first_words(reader, lines)
        if not words:
            return
        first, *rest = words
        if not isinstance(first, door.Hello):
            raise door.DoorError("the first message was no Hello", where="agent's door")
        reply = receive(first, present=self._present, endpoint=self._endpoint)
        writer.write(door.encode(reply))
        if isinstance(reply, door.Refused):
            log.warning("agent refused: %s", reply.reason, extra={"agent": first.agent})
            await writer.drain()
            return
        self._present = first.agent
        log.info("agent connected", extra={"agent": first.agent})
        try:
            self._on_agent(first.agent, _speaker(writer))
            self._hand_on(rest)
            while data := await reader.read(_CHUNK):
                self._hand_on(lines.feed(data))
        finally:
            self._present = None
            self._on_agent_gone()
            log.info("agent gone", extra={"agent": first.agent})

    async def _first_words(
        self, reader: asyncio.StreamReader, lines: door.Lines[door.FromAgent]
    ) -> list[door.FromAgent]:
        deadline = self._clock.monotonic() + HELLO_PATIENCE
        while True:
            words = asyncio.ensure_future(reader.read(_CHUNK))
            try:
                if not await settled(words, seconds=deadline - self._clock.monotonic(), clock=self._clock):
                    raise door.DoorError(f"no Hello within {HELLO_PATIENCE} s", where="agent's door")
            finally:
                words.cancel()
            messages = list(lines.feed(words.result()))
            if messages or not words.result():
                return messages

    def _hand_on(self, messages: Iterable[door.FromAgent]) -> None:
        for message in messages:
            if isinstance(message, door.Hello):
                raise door.DoorError("a second Hello", where="agent's door")
            self._on_message(message)


def _speaker(writer: asyncio.StreamWriter) -> Callable[[door.FromEndpoint], None]:
    """Make the way to speak to an agent; one that does not listen is disconnected."""

    def speak(message: door.FromEndpoint) -> None:
        if writer.transport.get_write_buffer_size() > MOST_UNREAD:
            log.warning("the agent reads nothing: its connection is closed")
            writer.transport.abort()
        elif not writer.is_closing():
            writer.write(door.encode(message))

    return speak


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and not path.is_socket():
        raise OSError(errno.EEXIST, "what lies there is no socket")
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(os.fspath(path))
        path.chmod(0o600)
    except OSError:
        listening.close()
        raise
    return listening
