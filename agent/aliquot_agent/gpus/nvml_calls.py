"""Calls into a C library that may hang, from asyncio.

Theory of operation. One thread makes all the calls, one at a time, so that nothing in the library runs beside anything
else. A call has a deadline; a call that misses it can't be interrupted, so its thread is left inside the library and a
new one takes over, for the next GPU must not wait for the one that hangs. What hangs is remembered by what it is about,
and further calls about that are refused at once until it has come back: so there are never more threads than GPUs, plus
two. Before the library is shut down every call must have come back: shutting it down under a thread is a use
after free. If one does not come back in time, the library is left as it is; the process's end cleans up.

What must always hold: `finish` runs its last call with no other call in the library, or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from aliquot_agent.gpus.driver import DriverClosedError
from aliquot_agent.waiting import settled
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)
T = TypeVar("T")
_Job = tuple[Future[Any], Callable[[], Any]]


class OverdueError(Exception):
    """A call did not come back in time."""


class CallThread:
    """A thread that makes one call after another; a daemon, so that a hanging call does not hold up the exit."""

    def __init__(self, *, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Put a call at the end of the queue."""
        future: Future[T] = Future()
        self._jobs.put((future, work))
        return future

    def retire(self) -> None:
        """End the thread after the calls that are queued."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 (it is raised again where the result is awaited)
                future.set_exception(error)
            else:
                future.set_result(result)
            # An idle thread would keep the last result alive until its next call.
            del job, future, work


class CallDesk:
    """Where coroutines hand in their calls."""

    def __init__(self, *, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._thread = CallThread(name=name)
        self._running: list[Future[Any]] = []
        self._hanging: dict[str, Future[Any]] = {}
        self._closed = False
        self._process = os.getpid()

    async def call(self, work: Callable[[], T], *, about: str, within_s: float) -> T:
        """Make a call; raises `OverdueError` if it is not back in time, at once if the one before still hangs."""
        if self._closed or os.getpid() != self._process:
            raise DriverClosedError("the GPU driver was closed, or belongs to the parent process", where=about)
        if self._hangs(about):
            raise OverdueError(about)
        return await self._make(work, about=about, within_s=within_s)

    @property
    def anything_hangs(self) -> bool:
        """Whether any overdue call is still inside the library."""
        return any(not future.done() for future in self._hanging.values())

    async def finish(self, last: Callable[[], None], *, within_s: float) -> bool:
        """Take no more calls, wait for those inside, make the last one; False if something kept it from that."""
        self._closed = True
        inside = [asyncio.wrap_future(future) for future in self._running if not future.done()]
        drained = not inside or await settled(
            asyncio.gather(*inside, return_exceptions=True), clock=self._clock, seconds=within_s
        )
        try:
            if drained:
                await self._make(last, about=self._name, within_s=within_s)
        except OverdueError:
            drained = False
        self._thread.retire()
        return drained

    def _hangs(self, about: str) -> bool:
        self._hanging = {key: future for key, future in self._hanging.items() if not future.done()}
        return about in self._hanging

    async def _make(self, work: Callable[[], T], *, about: str, within_s: float) -> T:
        future = self._thread.submit(work)
        self._running = [running for running in self._running if not running.done()] + [future]
        answer = asyncio.wrap_future(future)
        # Overdue or cancelled, nobody awaits it any more, and asyncio would complain of an error never retrieved.
        answer.add_done_callback(look_at_error)
        try:
            if await settled(answer, clock=self._clock, seconds=within_s):
                return answer.result()
        except asyncio.CancelledError:
            future.cancel()
            raise
        if not future.cancel():
            self._hanging[about] = future
        self._replace_thread(about=about, within_s=within_s)
        raise OverdueError(about)

    def _replace_thread(self, *, about: str, within_s: float) -> None:
        log.warning("a driver call hangs, going on without it", extra={"about": about, "seconds": within_s})
        self._thread.retire()
        self._thread = CallThread(name=self._name)


def look_at_error(answer: asyncio.Future[Any]) -> None:
    """Take note of the error of a call that nobody waits for any more."""
    if not answer.cancelled():
        answer.exception()
