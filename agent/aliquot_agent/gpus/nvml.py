"""The real GPUs, through NVML: the thin shell that puts session, threads and events together.

What is asked and how stands in nvml_facts, nvml_usage and nvml_events; how a call that hangs is survived in nvml_calls;
which change of a GPU is an event in presence. A GPU that was lost comes back only to a new initialisation of NVML, in
which the handles of all die: so that is done in `discover`, ever more seldom, and only while nothing hangs.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import msgspec

from aliquot_agent.gpus.driver import GpuDriverError, GpuLostError
from aliquot_agent.gpus.event_book import EventBook
from aliquot_agent.gpus.model import Discovery, GpuEvent, GpuProblem, GpuUsage
from aliquot_agent.gpus.nvml_asking import Asking
from aliquot_agent.gpus.nvml_binding import UninitializedError
from aliquot_agent.gpus.nvml_calls import CallDesk
from aliquot_agent.gpus.nvml_discovery import Explorer, to_watch
from aliquot_agent.gpus.nvml_events import EventWatch, Heard
from aliquot_agent.gpus.nvml_session import NvmlSession
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long NVML may take; the first initialisation takes seconds where persistence mode is off."""

    open_s: float = 30.0
    call_s: float = 5.0
    close_s: float = 5.0
    # How long the waiting thread stays inside the library at a time.
    slice_s: float = 0.5
    # A new initialisation disturbs nobody but us, yet takes seconds: for a card that is gone for good it is tried
    # half as often each time.
    reopen_first_s: float = 30.0
    reopen_last_s: float = 600.0


class NvmlDriver:
    """A node's NVIDIA GPUs."""

    def __init__(self, *, clock: Clock, patience: Patience | None = None) -> None:
        self._clock = clock
        self._patience = patience or Patience()
        self._session = NvmlSession()
        self._desk = CallDesk(clock=clock, name="nvml")
        self._book = EventBook(clock=clock)
        self._asking = Asking(desk=self._desk, book=self._book, call_s=self._patience.call_s)
        self._explorer = Explorer(asking=self._asking, session=self._session, book=self._book)
        self._watch = EventWatch(
            clock=clock, slice_s=self._patience.slice_s, heard=self._heard, failed=self._wait_failed
        )
        self._turn = asyncio.Lock()
        self._reopen_wait_s = self._patience.reopen_first_s
        self._opened_at = clock.monotonic()
        self._watched: frozenset[str] = frozenset()
        self._unwatched: tuple[GpuProblem, ...] = ()
        self._wait_error: Exception | None = None
        self._closed = False

    async def discover(self) -> Discovery:
        """Look at the driver and all GPUs afresh; lost ones are tried again here."""
        async with self._turn:
            return await self._discover()

    async def usage(self) -> tuple[GpuUsage, ...]:
        """Say what each GPU does; one that does not answer is missing, and an event says why."""
        async with self._turn:
            if not self._session.is_open:
                await self._discover()
            answers = [await self._usage_of(uuid, index) for uuid, index in self._explorer.known.items()]
            answers += [await self._usage_of_part(uuid, card=card) for uuid, card in self._parts()]
            await self._rewatch()
            return tuple(answer for answer in answers if isinstance(answer, GpuUsage))

    async def events(self, *, timeout_s: float) -> list[GpuEvent]:
        """Wait for something to happen, at most so long; opens the driver first if nobody has."""
        end = self._clock.monotonic() + timeout_s
        if not self._session.is_open:
            await self.discover()
        while self._book.empty and (left := end - self._clock.monotonic()) > 0:
            self._watch.arm()
            await self._book.wait(seconds=left)
            error, self._wait_error = self._wait_error, None
            if error is not None:
                await self._after_failed_wait(error, within_s=end - self._clock.monotonic())
        return self._book.take()

    async def close(self) -> None:
        """Drain both threads and shut NVML down; what does not come out in time is left to the process's end."""
        if self._closed:
            return
        self._closed = True
        outside = await self._watch.stop(within_s=self._patience.close_s)
        self._watch.end()
        last = self._session.close if outside else self._session.forget
        if not await self._desk.finish(last, within_s=self._patience.close_s) or not outside:
            log.warning("NVML still has a call inside and is not shut down")

    async def _discover(self) -> Discovery:
        await self._open()
        try:
            discovery = await self._explorer.discover()
        except UninitializedError:
            self._session.forget()
            raise
        if not self._book.presence.lost:
            self._reopen_wait_s = self._patience.reopen_first_s
        await self._rewatch()
        return msgspec.structs.replace(discovery, problems=discovery.problems + self._unwatched)

    async def _open(self) -> None:
        if self._session.is_open:
            if not self._may_reopen():
                return
            if not await self._watch.stop(within_s=self._patience.close_s):
                self._watch.resume()
                return
            await self._asking.system(self._session.close)
            self._reopen_wait_s = min(2 * self._reopen_wait_s, self._patience.reopen_last_s)
        self._watch.forget()
        self._watched = frozenset()
        self._watch.resume()
        await self._asking.system(self._session.open, within_s=self._patience.open_s)
        self._opened_at = self._clock.monotonic()

    def _may_reopen(self) -> bool:
        waited = self._clock.monotonic() - self._opened_at >= self._reopen_wait_s
        return bool(self._book.presence.lost) and waited and not self._desk.anything_hangs

    async def _usage_of(self, uuid: str, index: int) -> GpuUsage | GpuProblem:
        return await self._asking.gpu(partial(self._session.usage, uuid=uuid), index=index, uuid=uuid)

    async def _usage_of_part(self, uuid: str, *, card: str) -> GpuUsage | GpuProblem:
        """Of an instance; that it does not answer is no event: it is as well as its GPU, or was taken away."""
        work = partial(self._session.part_usage, uuid=uuid)
        return await self._asking.gpu(work, index=self._explorer.known[card], uuid=None)

    def _parts(self) -> list[tuple[str, str]]:
        return [(uuid, card) for card, uuids in self._explorer.instances.items() for uuid in uuids]

    async def _rewatch(self) -> None:
        """Register for events anew if a GPU came, came back, or was lost."""
        wanted = to_watch(known=self._explorer.known, book=self._book)
        if wanted <= self._watched and not self._watched & self._book.presence.lost:
            return
        indexes = {uuid: index for uuid, index in self._explorer.known.items() if uuid in wanted}
        try:
            events, self._unwatched = await self._asking.system(partial(self._session.watch, indexes=indexes))
        except GpuDriverError as error:
            log.warning("GPUs are not watched for errors", extra={"error": str(error)})
            return
        self._watch.use(events)
        self._watched = wanted

    def _heard(self, heard: list[Heard]) -> None:
        for kind, uuid, number in heard:
            self._book.add(kind=kind, uuid=uuid, number=number)
        self._book.stir()

    def _wait_failed(self, error: Exception) -> None:
        self._wait_error = error
        self._book.stir()

    async def _after_failed_wait(self, error: Exception, *, within_s: float) -> None:
        """Find the lost GPU that spoils the wait; for anything else, breathe before trying again."""
        if isinstance(error, GpuLostError):
            await self.usage()
        if self._book.empty:
            log.warning("waiting for GPU events failed", extra={"error": str(error)})
            await self._clock.sleep(max(0.0, min(self._patience.slice_s, within_s)))
