"""The agent's side of the door: tells the endpoint the devices and answers the calls that the kubelet makes.

The endpoint may be away at any time (it is hardly ever, but it is another process): then everything is tried again, and
on return it gets a Hello and the newest table. Calls that were being answered are dropped with the connection; whoever
still waits at the endpoint is asked for anew, so a handler must be able to stop anywhere and be called again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from aliquot_agent.signal import Signal
from aliquot_core import door
from aliquot_core.backoff import Backoff, Random
from aliquot_core.clock import Clock
from aliquot_core.errors import NotAdmittedError

log = logging.getLogger(__name__)

# The endpoint is on this machine: a try costs nothing, and while it is away pods wait for us.
BACKOFF = Backoff(first=0.05, longest=1.0)
_CHUNK = 64 * 1024


class DoorRefusedError(NotAdmittedError):
    """The endpoint does not take this agent."""


class DoorHandler(Protocol):
    """Whoever knows the answers; many calls run at once."""

    async def may_start(self, call: door.PreStart) -> str | None:
        """None: the container may start; otherwise why it may not."""
        ...

    async def prefer(self, call: door.Prefer) -> list[str]:
        """Which ids the kubelet should take; none where that can't be told."""
        ...


class AgentDoor:
    """Keeps a connection to the endpoint."""

    def __init__(self, *, path: str, agent: str, handler: DoorHandler, clock: Clock, random: Random) -> None:
        self._path = path
        self._agent = agent
        self._handler = handler
        self._clock = clock
        self._random = random
        self._devices: door.Devices | None = None
        self._connection: _Connection | None = None
        self._kubelet: door.KubeletSeen | None = None
        self.changed = Signal()

    @property
    def kubelet(self) -> door.KubeletSeen | None:
        """What the kubelet listens to, as the endpoint last said; None while we don't know. `changed` tells of news."""
        return self._kubelet

    @property
    def connected(self) -> bool:
        """Whether the endpoint has let us in."""
        return self._connection is not None

    def publish(self, resources: Mapping[str, Sequence[door.Device]]) -> None:
        """Have the kubelet told of these devices, now or as soon as the endpoint is there."""
        devices = door.Devices(resources={name: list(listed) for name, listed in resources.items()})
        if devices == self._devices:
            return
        self._devices = devices
        if self._connection is not None:
            self._connection.say(devices)

    async def run(self) -> None:
        """Connect again and again, until cancelled; raises `DoorRefusedError` where another agent is connected."""
        failures = 0
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError as error:
                failures += 1
                if failures == 1:
                    log.warning("the endpoint is not there yet: %s", error, extra={"door": self._path})
            else:
                failures = 1 if await self._visit(reader, writer) else failures + 1
            await self._clock.sleep(BACKOFF.delay(failures=failures, random=self._random))

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Talk until the connection ends; tell whether we were welcome."""
        connection = _Connection(writer, handler=self._handler)
        try:
            connection.say(door.Hello(agent=self._agent))
            await self._listen(reader, connection)
        except (OSError, door.DoorError) as error:
            log.warning("the door was shut: %s", error)
        finally:
            was_welcome, self._connection = self._connection is not None, None
            self._kubelet = None
            self.changed.notify()
            await connection.close()
        return was_welcome

    async def _listen(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        lines = door.from_endpoint()
        while data := await reader.read(_CHUNK):
            for message in lines.feed(data):
                self._take(message, connection)
        log.warning("the endpoint closed the door")

    def _take(self, message: door.FromEndpoint, connection: _Connection) -> None:
        match message:
            case door.Refused(reason=reason):
                raise DoorRefusedError(reason, where=self._path, remedy="stop the other agent, or this one")
            case door.Welcome(endpoint=endpoint):
                log.info("at the door", extra={"endpoint": endpoint})
                self._connection = connection
                if self._devices is not None:
                    connection.say(self._devices)
            case door.KubeletSeen():
                self._kubelet = message
                self.changed.notify()
            case door.PreStart() | door.Prefer():
                connection.answer(message)
            case door.Forget(call=call):
                connection.forget(call)


class _Connection:
    """One connection, and the answers being made for it."""

    def __init__(self, writer: asyncio.StreamWriter, *, handler: DoorHandler) -> None:
        self._writer = writer
        self._handler = handler
        self._answers: dict[int, asyncio.Task[None]] = {}

    def say(self, message: door.FromAgent) -> None:
        """Send a message."""
        if not self._writer.is_closing():
            self._writer.write(door.encode(message))

    def answer(self, call: door.PreStart | door.Prefer) -> None:
        """Begin to answer a call."""
        task = asyncio.ensure_future(self._started(call) if isinstance(call, door.PreStart) else self._preferred(call))
        self._answers[call.call] = task
        task.add_done_callback(lambda _: self._answers.pop(call.call, None))

    def forget(self, call: int) -> None:
        """Stop answering a call that nobody waits for."""
        if task := self._answers.get(call):
            task.cancel()

    async def close(self) -> None:
        """Drop all answers and the connection."""
        self._writer.close()
        answers = list(self._answers.values())
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def _started(self, call: door.PreStart) -> None:
        try:
            refused = await self._handler.may_start(call)
        except Exception as error:  # a defect of ours: the kubelet tries again, and its Event names the defect
            log.exception("a start could not be decided", extra={"resource": call.resource, "ids": call.ids})
            refused = f"Aliquot's agent failed: {error}"
        self.say(door.Started(call=call.call, refused=refused))

    async def _preferred(self, call: door.Prefer) -> None:
        try:
            ids = await self._handler.prefer(call)
        except Exception:  # a defect of ours: without advice the endpoint chooses
            log.exception("no preference could be made", extra={"resource": call.resource})
            ids = []
        self.say(door.Preference(call=call.call, ids=ids))
