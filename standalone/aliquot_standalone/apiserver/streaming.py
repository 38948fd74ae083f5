"""One watch on its way to one reader, at the reader's pace.

The session pulls from history, writes, and waits to be woken by the next write to its table. While `write` waits for a
slow reader nothing is pulled and nobody else waits; once history has passed the reader, the next pull says so and ends
the stream. A reader that does not read at all cannot be told: it is cut when its time is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from .failures import ApiError
from .reading import error_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aliquot_core.clock import Clock

    from .exchange import Stream
    from .store import Change, Store


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between bookmarks, of a watch that names no end, and until a stuck reader is cut after that."""

    bookmark: float = 60.0
    watch: float = 2400.0
    patience: float = 5.0


class WatchSession:
    """Carries one stream."""

    def __init__(
        self,
        *,
        stream: Stream,
        clock: Clock,
        timing: Timing,
        write: Callable[[bytes], Awaitable[None]],
        abort: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._timing = timing
        self._write = write
        self._abort = abort
        self._news = asyncio.Event()
        self._over = False
        self._bookmark_due = False

    def wake(self) -> None:
        """Say that there may be something to pull."""
        self._news.set()

    def end(self) -> None:
        """Finish the stream after what is there."""
        self._over = True
        self._news.set()

    async def run(self) -> None:
        """Write until the time is over or the reader is too late."""
        pulse = asyncio.create_task(self._pulse())
        try:
            if self._stream.opening:
                await self._write(b"".join(self._stream.opening))
            if not self._stream.finished:
                await self._follow()
        finally:
            pulse.cancel()

    async def _follow(self) -> None:
        watch = self._stream.watch
        while True:
            self._news.clear()
            over = self._over
            try:
                lines = [self._stream.render(notice) for notice in watch.take()]
            except ApiError as error:
                await self._write(error_line(error))
                return
            if not watch.behind:
                lines += self._bookmark(over=over)
            if lines:
                await self._write(b"".join(lines))
            if watch.behind:
                continue
            if over:
                return
            await self._news.wait()

    def _bookmark(self, *, over: bool) -> list[bytes]:
        if self._stream.bookmark is None or not (over or self._bookmark_due):
            return []
        self._bookmark_due = False
        return [self._stream.bookmark(self._stream.watch.caught_up())]

    async def _pulse(self) -> None:
        timeout = self._timing.watch if self._stream.timeout is None else self._stream.timeout
        ends = self._clock.monotonic() + timeout
        while (left := ends - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, self._timing.bookmark))
            self._bookmark_due = True
            self.wake()
        self.end()
        await self._clock.sleep(self._timing.patience)
        self._abort()


class Watchers:
    """All sessions of one server: each write to a table wakes those who watch it, and nobody else."""

    def __init__(self, *, store: Store, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._timing = timing
        self._sessions: dict[str, set[WatchSession]] = {}
        store.subscribe(self._ring)

    async def serve(
        self, stream: Stream, *, write: Callable[[bytes], Awaitable[None]], abort: Callable[[], None]
    ) -> None:
        """Carry one stream to its end."""
        session = WatchSession(stream=stream, clock=self._clock, timing=self._timing, write=write, abort=abort)
        sessions = self._sessions.setdefault(stream.watch.table, set())
        sessions.add(session)
        try:
            await session.run()
        finally:
            sessions.discard(session)

    def end_all(self) -> None:
        """Let every stream end after what is there."""
        for sessions in self._sessions.values():
            for session in sessions:
                session.end()

    def _ring(self, table: str, _: Change) -> None:
        for session in self._sessions.get(table, ()):
            session.wake()
