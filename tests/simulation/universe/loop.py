"""An event loop whose time is a number: when nobody can go on, it moves to the next timer at once.

Whatever would touch the outside is missing or refuses: no selector, no threads, no sockets but those made of buffers.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# Wall time at the loop's beginning: a Monday morning, for timestamps that people read.
EPOCH = 1_767_600_000.0
# So many turns without time passing are no work but a busy loop.
MOST_TURNS_AT_ONE_INSTANT = 20_000
LATENCY = 0.0002


class StuckError(AssertionError):
    """Nothing can ever happen again, or the same happens for ever without time passing."""


class OutsideError(AssertionError):
    """The simulated code reached for the real world."""


class _Skipper:
    """Stands where a loop has its selector: instead of waiting, it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise StuckError(f"at {self._loop.time():.3f} s nobody waits for time, and nobody can go on")
        self._loop.pass_time(timeout)
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one simulation."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Skipper(self)
        self._clock_resolution = 1e-7
        self._now = 0.0
        self._turns_now = 0
        self.listeners: dict[str, Callable[[], asyncio.Protocol]] = {}
        self.complaints: list[str] = []
        # What the world does is not done in the name of the agent whose step happened to cause it.
        self.world = contextvars.copy_context()
        self.set_exception_handler(self._complain)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and notice when it no longer moves."""
        if seconds > 0:
            self._now += seconds
            self._turns_now = 0
            return
        self._turns_now += 1
        if self._turns_now > MOST_TURNS_AT_ONE_INSTANT:
            raise StuckError(f"a busy loop: {self._turns_now} turns at {self._now:.3f} s")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of `main`, end what is left, and complain of what nobody took notice of."""
        try:
            result = self.run_until_complete(main)
        finally:
            self._end_all()
        if self.complaints:
            raise AssertionError("; ".join(self.complaints))
        return result

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T]:
        """Begin something that belongs to the world, whoever asks for it."""
        return self.world.copy().run(lambda: self.create_task(work, name=name or None))

    async def create_unix_connection(  # type: ignore[override]  # what asyncio calls it with
        self, protocol_factory: Callable[[], asyncio.Protocol], path: str | None = None, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect two buffers, if anybody listens there."""
        await asyncio.sleep(LATENCY)
        accept = self.listeners.get(path or "")
        if accept is None:
            raise ConnectionRefusedError(f"nobody listens at {path}")
        near, far = Pipe(self), Pipe(self)
        near.peer, far.peer = far, near
        near.protocol = protocol_factory()
        self.world.copy().run(lambda: far.attach(accept()))
        near.protocol.connection_made(near)
        if (owner := _owner.get()) is not None:
            owner.owns(near)
        return near, near.protocol

    def run_in_executor(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]  # none runs
        """Refuse: there are no threads here."""
        raise OutsideError("a thread was asked for")

    def _process_events(self, event_list: Any) -> None:
        """None ever comes."""

    def _write_to_self(self) -> None:
        """Only other threads need to wake a loop; the garbage collector asks for it from ours."""

    def _complain(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self.complaints.append(f"{context['message']}: {error!r}")

    def _end_all(self) -> None:
        """Cancel what is left, in an order of its own."""
        self._turns_now = 0
        try:
            if left := sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
                for task in left:
                    task.cancel()
                self.run_until_complete(asyncio.wait(left, timeout=60.0))
            self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self.close()


class LoopClock:
    """The simulation's time as Aliquot asks for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._loop.time()

    def wall(self) -> float:
        """Seconds since 1970, virtually."""
        return EPOCH + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Give others their turn for so long."""
        await asyncio.sleep(seconds)


class Owner(Protocol):
    """A process: what it holds open is shut when it dies."""

    def owns(self, pipe: Pipe) -> None:
        """Take note of an open end."""
        ...


_owner: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("_owner", default=None)
owner = _owner


class Pipe(asyncio.Transport):
    """One end of a connection; bytes arrive in order, a moment later, also those of a process that has died since."""

    protocol: asyncio.Protocol
    peer: Pipe

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._arriving: deque[bytes | None] = deque()
        self._closed = False

    def attach(self, protocol: asyncio.Protocol) -> None:
        """Give this end to whoever listens."""
        self.protocol = protocol
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if not self._closed:
            self.peer.arrive(bytes(data))

    def close(self) -> None:
        """Shut both ends."""
        self.sever()
        self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        """The same: nothing is buffered that could be lost."""
        self.close()

    def sever(self) -> None:
        """Shut this end without a word to its own process, which is dead."""
        if not self._closed:
            self._closed = True
            self.peer.arrive(None)

    def is_closing(self) -> bool:
        """Whether it is shut."""
        return self._closed

    def get_write_buffer_size(self) -> int:
        """What was written and not yet read at the other side."""
        return sum(len(data or b"") for data in self.peer._arriving)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - the interface's
        """Nothing is known of buffers."""
        return default

    def arrive(self, data: bytes | None) -> None:
        """Have it delivered in its turn; None is the end."""
        self._arriving.append(data)
        self._loop.call_later(LATENCY, self._deliver, context=self._loop.world.copy())

    def _deliver(self) -> None:
        data = self._arriving.popleft()
        if self._closed:
            return
        if data is not None:
            self.protocol.data_received(data)
        else:
            self._closed = True
            self.protocol.eof_received()
            self.protocol.connection_lost(None)
