"""Bytes from a reading thread to the event loop, in order and never more than a limit in between.

The thread waits while the belt is full, so a slow consumer slows the socket and then the server. The loop is woken once
for all that lies on the belt, not once for each chunk: a burst of 5,000 events would cost 5,000 wake-ups otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

BELT_BYTES = 1024 * 1024


class Conveyor:
    """One belt; `put`, `started` and `finish` are the thread's side, the rest is the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, most_bytes: int = BELT_BYTES) -> None:
        self._loop = loop
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._wake = asyncio.Event()
        self._woken = False
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._started = self._finished = self._closed = False
        self._error: Exception | None = None

    def started(self) -> None:
        """The server took the request."""
        with self._changed:
            self._started = True
            self._wake_loop()

    def put(self, chunk: bytes) -> bool:
        """Lay a chunk on the belt, waiting while it is full; False once nobody wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < self._most_bytes or self._closed)
            if self._closed:
                return False
            self._chunks.append(chunk)
            self._bytes += len(chunk)
            self._wake_loop()
            return True

    def finish(self, error: Exception | None) -> None:
        """Nothing more will come."""
        with self._changed:
            self._finished = True
            self._error = error
            self._wake_loop()

    async def wait_started(self) -> None:
        """Wait until the server took the request, or raise why it did not."""
        await self._wake.wait()
        with self._changed:
            if not self._started and self._error is not None:
                raise self._error

    async def take(self) -> list[bytes]:
        """Take all that lies on the belt; nothing means the end, and an end in trouble raises."""
        while True:
            await self._wake.wait()
            with self._changed:
                chunks, self._chunks, self._bytes = self._chunks, [], 0
                self._changed.notify_all()
                if chunks:
                    return chunks
                if self._error is not None:
                    raise self._error
                if self._finished:
                    return []
                self._woken = False
                self._wake.clear()

    def close(self) -> None:
        """Want no more: the thread is let off at once."""
        with self._changed:
            self._closed = True
            self._chunks.clear()
            self._changed.notify_all()

    def _wake_loop(self) -> None:
        if self._woken or self._closed:
            return
        self._woken = True
        # The loop may have ended with the process; then there is nobody to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)
