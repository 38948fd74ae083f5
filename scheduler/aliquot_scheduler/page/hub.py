"""Looks as often as anybody wants to know, draws beside the decisions, and tells each reader what is new for it.

Nobody has a queue: a reader that is slow gets the difference between what it was told last and what is now, whenever
it is ready for more. So what is kept for one is bounded by the view itself, and nobody waits for a reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.page.drawing import Drawing, Steps
from aliquot_scheduler.page.history import History
from aliquot_scheduler.page.history_file import KEEP_EVERY, HistoryFile
from aliquot_scheduler.page.looking import Looking, Seen
from aliquot_scheduler.page.model import State
from aliquot_scheduler.page.settings import PageSettings
from aliquot_scheduler.page.usage import UsageSource
from aliquot_scheduler.page.views import Children, View, change

log = logging.getLogger(__name__)

# What was shown lately, so that a reader who has just loaded a page is told of changes alone.
_KEPT = 64
# A reader that nothing is said to can't be told from one that is gone.
_SILENCE = 15.0
_BLINK = b": still here\n\n"
_AGAIN = b"event: again\ndata: \n\n"


class NobodyLeadsError(Exception):
    """This replica has nothing to show."""


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """One look, and what belongs to it."""

    number: int
    state: State
    pods: Mapping[str, Pod]


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A view as it was drawn from one look."""

    serial: str
    number: int
    view: View


class Hub:
    """Whoever shows asks here; `run` looks."""

    def __init__(
        self,
        *,
        sight: Callable[[], Seen | None],
        usage: UsageSource,
        clock: Clock,
        names: Names,
        settings: PageSettings,
    ) -> None:
        """`sight` is what the leader knows; None where this replica does not lead."""
        self._sight = sight
        self._usage = usage
        self._clock = clock
        self._names = names
        self._settings = settings
        self.history = History(points=settings.samples)
        self._history_file = HistoryFile(settings.history)
        self._next_keep = float("-inf")
        self.readers = 0
        self._looking = Looking(names=names)
        self._seen_by: object = None
        self._drawing = Drawing(names=names)
        self._pen = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self._glance: Glance | None = None
        self._looks = 0
        # What this process calls its looks: numbers begin anew with the next one.
        self._origin = f"{int(clock.wall() * 1000):x}"
        self._drawn: dict[Steps, asyncio.Task[Drawn | None]] = {}
        self._kept: OrderedDict[tuple[Steps, str], dict[str, Children]] = OrderedDict()
        self._look_lock = asyncio.Lock()
        self._looked_at = float("-inf")
        self._next_sample = float("-inf")
        self._news = asyncio.Event()
        self._over = False

    async def run(self) -> None:
        """Look as often as is wanted, until cancelled."""
        self.history.restore(self._history_file.read(), now=self._clock.wall())
        self._next_keep = self._clock.monotonic() + KEEP_EVERY
        try:
            while True:
                try:
                    await self._turn()
                except Exception:  # a defect of ours: the page stands still, and the centre goes on deciding
                    log.exception("the page could not be brought up to date")
                await self._clock.sleep(self._settings.every)
        finally:
            # Whoever follows is let go at once: a server that ends would wait for them.
            self._over = True
            self._wake()
            self._pen.shutdown(wait=False)
            self._history_file.write(self.history.since())

    async def glance(self) -> Glance:
        """What there is to see, as of a moment ago."""
        async with self._look_lock:
            if self._over:
                raise NobodyLeadsError
            fresh = self._clock.monotonic() - self._looked_at < self._settings.every
            if self._glance is None or not fresh or self._sight() is None:
                await self._look_now()
            if self._glance is None:
                raise NobodyLeadsError
            return self._glance

    async def drawn(self, steps: Steps) -> Drawn | None:
        """A view of now; None where there is none at that address. Readers of the same view share it."""
        glance = await self.glance()
        if self._over:
            raise NobodyLeadsError
        task = self._drawn.get(steps)
        if task is None:
            task = self._drawn[steps] = asyncio.ensure_future(self._draw(steps, glance))
        return await asyncio.shield(task)

    async def follow(self, steps: Steps, *, since: str) -> AsyncIterator[bytes]:
        """Server-sent events: what has changed since a serial, and from then on; nothing if there is no such view."""
        before: Mapping[str, Children] = self._kept.get((steps, since), {})
        told = self._clock.monotonic()
        yield b"retry: 2000\n\n"
        while True:
            news = self._news
            try:
                drawn = await self.drawn(steps)
            except NobodyLeadsError:
                return
            if drawn is None:
                return
            after = drawn.view.regions()
            if before.keys() - after.keys():
                # What it is about is gone, so the page is another one.
                yield _AGAIN
                return
            if changes := change(before, after):
                yield _event(drawn.serial, changes)
                told = self._clock.monotonic()
            elif self._clock.monotonic() - told > _SILENCE:
                yield _BLINK
                told = self._clock.monotonic()
            before = after
            await news.wait()

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        if self._sight() is None:
            self._forget()
        elif self.readers or now >= self._next_sample:
            await self._look()
            self._sample(now)
        if self._settings.history and now >= self._next_keep:
            self._next_keep = now + KEEP_EVERY
            await asyncio.get_running_loop().run_in_executor(self._pen, self._history_file.write, self.history.since())

    # --- looking -----------------------------------------------------------------------------------------------------
    async def _look(self) -> None:
        async with self._look_lock:
            await self._look_now()

    async def _look_now(self) -> None:
        seen = self._sight()
        if seen is None:
            self._forget()
            return
        if seen.turns is not self._seen_by:
            # Another reign has begun: what was remembered of the one before is not of this one.
            self._seen_by, self._looking = seen.turns, Looking(names=self._names)
            self.history.counted_anew()
        steps = self._looking.look(seen, self._usage.latest())
        while True:
            try:
                next(steps)
            except StopIteration as done:
                state: State = done.value
                break
            await asyncio.sleep(0)
        self._looks += 1
        self._glance = Glance(number=self._looks, state=state, pods=seen.pods)
        self._looked_at = self._clock.monotonic()
        self._wake()

    def _sample(self, now: float) -> None:
        # What is not known yet is not how it was.
        if self._glance is not None and not self._glance.state.paused and now >= self._next_sample:
            self.history.add(self._glance.state)
            self._next_sample = now + self._settings.sample

    def _forget(self) -> None:
        if self._glance is not None:
            self._glance, self._seen_by = None, None
            self._looking = Looking(names=self._names)
            self._wake()

    def _wake(self) -> None:
        self._drawn.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()

    # --- drawing -----------------------------------------------------------------------------------------------------
    async def _draw(self, steps: Steps, glance: Glance) -> Drawn | None:
        if self._over:  # since it was asked for: there is no pen any more
            raise NobodyLeadsError
        samples = self.history.since()

        def draw() -> View | None:
            return self._drawing.view(steps, glance.state, pods=glance.pods, samples=samples)

        view = await asyncio.get_running_loop().run_in_executor(self._pen, draw)
        if view is None:
            return None
        serial = f"{self._origin}.{glance.number}"
        self._kept[steps, serial] = view.regions()
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return Drawn(serial=serial, number=glance.number, view=view)


def _event(serial: str, changes: dict[str, object]) -> bytes:
    return b"id: " + serial.encode() + b"\ndata: " + msgspec.json.encode(changes) + b"\n\n"
