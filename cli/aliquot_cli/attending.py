"""Carries out what `one_run` decides: one pod followed to its end, and taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Protocol

from aliquot_cli.cluster import Connection
from aliquot_cli.handing_out import OutputError
from aliquot_cli.one_run import Action, Delete, End, OneRun, ReadLog, Say, Warn
from aliquot_cli.pod_output import Log, print_all
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified, Synced
from aliquot_kube.errors import NotFoundError, ServerTroubleError, UnreachableError
from aliquot_kube.mirror import Mirror
from aliquot_kube.resources import PODS
from aliquot_kube.wire import Decoder

# Whoever gets a slice soon is not to pay for knowing the place in a line: 0.3 s of processor and five watches. A
# hundred runs at once kept two cores from deciding at all, so they do not all begin at the same time either. Why a pod
# waits is told at once: it stands on the pod.
_PLACE_AFTER = 2.0
# What a pod that has ended had printed may be read a moment later; where its node is dead it never can be.
_READ_WITHIN = 30.0


class Places(Protocol):
    """Tells where in its queue a pod stands."""

    async def __call__(self, uid: str, *, tell: Callable[[str], None]) -> None:
        """Tell until cancelled."""
        ...


class Attending:
    """One run."""

    def __init__(
        self,
        *,
        connection: Connection,
        names: Names,
        clock: Clock,
        random: Random,
        write: Callable[[bytes], None],
        say: Callable[[str], None],
        warn: Callable[[str], None],
        places: Places,
        interrupts: asyncio.Queue[None],
        container: str,
    ) -> None:
        """`write` takes what it prints, `say` how it goes, `warn` what is wrong; `interrupts` are the user's wish."""
        self._connection = connection
        self._clock = clock
        self._random = random
        self._write = write
        self._say = say
        self._warn = warn
        self._places = places
        self._interrupts = interrupts
        self._container = container
        self._run = OneRun(names=names)
        self._events: asyncio.Queue[Callable[[], Iterator[Action]]] = asyncio.Queue()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._uid = ""
        self._pod = Pod()
        self._known: Callable[[], Iterable[Pod]] = tuple
        self._read_until: float | None = None

    async def attend(self, created: bytes, *, keep: bool) -> int:
        """Follow the pod that was made, as the API server answered; the program's exit code."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop_all)
            self._pod = Decoder(Pod).object(created)
            self._uid = self._pod.metadata.uid
            # Only now: a list from before would tell nothing of a pod that is gone by the time the watch stands.
            self._start("watch", self._watch())
            self._start("interrupts", self._hear())
            self._events.put_nowait(partial(self._run.seen, self._pod))
            code = await self._until_over()
            if not keep and not self._run.is_gone and not self._run.is_unwritten:
                await self._tidy_up()
        return code

    async def _until_over(self) -> int:
        while True:
            event = await self._events.get()
            for action in event():
                match action:
                    case End(code=code):
                        return code
                    case Say(text=text):
                        self._say(text)
                    case Warn(text=text):
                        self._warn(text)
                    case ReadLog(follow=follow):
                        self._start("log", self._read(follow=follow))
                    case Delete(now=now):
                        await self._delete(now=now)
            if self._run.waits and "places" not in self._tasks:
                self._start("places", self._tell_places())
            elif not self._run.waits and (places := self._tasks.get("places")):
                places.cancel()

    def _start(self, name: str, work: Any) -> None:
        self._tasks[name] = asyncio.create_task(work)

    async def _stop_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _hear(self) -> None:
        while True:
            await self._interrupts.get()
            self._events.put_nowait(self._run.interrupted)

    async def _watch(self) -> None:
        meta = self._pod.metadata
        mirror = Mirror[Pod](
            transport=self._connection.transport,
            clock=self._clock,
            random=self._random,
            resource=PODS,
            namespace=meta.namespace,
            field_selector=f"metadata.name={meta.name}",
        )
        self._known = mirror.objects.values
        mirror.subscribe(self._noticed)
        await mirror.run()

    def _noticed(self, change: Change[Pod]) -> None:
        match change:
            case Added(new=pod) | Modified(new=pod) if pod.metadata.uid == self._uid:
                self._events.put_nowait(partial(self._run.seen, pod))
            case Deleted(old=pod) if pod.metadata.uid == self._uid:
                self._events.put_nowait(self._run.gone)
            case Synced() if not any(pod.metadata.uid == self._uid for pod in self._known()):
                self._events.put_nowait(self._run.gone)

    async def _read(self, *, follow: bool) -> None:
        meta = self._pod.metadata
        log = Log(namespace=meta.namespace, pod=meta.name, container=self._container, follow=follow)
        try:
            why = await print_all(
                self._connection.transport,
                log,
                write=self._write,
                clock=self._clock,
                there=self._can_be_read,
            )
            if why:
                self._warn(f"its output can't be read: {why}")
        except BrokenPipeError:
            self._events.put_nowait(self._run.unheard)
        except OutputError as error:
            self._events.put_nowait(partial(self._run.unwritten, error.what))
        except (UnreachableError, ServerTroubleError) as error:
            self._warn(f"its output can't be read: {error}")
        finally:
            self._events.put_nowait(self._run.log_ended)

    def _can_be_read(self) -> bool:
        """Whether it is worth while to ask for its output again."""
        if self._run.is_gone:
            return False
        if not any(pod.ended for pod in self._known()):
            return True
        now = self._clock.monotonic()
        self._read_until = now + _READ_WITHIN if self._read_until is None else self._read_until
        return now < self._read_until

    async def _tell_places(self) -> None:
        await self._clock.sleep(_PLACE_AFTER * (1 + self._random()))
        if self._run.waits:
            await self._places(self._uid, tell=lambda place: self._events.put_nowait(partial(self._run.placed, place)))

    async def _tidy_up(self) -> None:
        """Delete what has ended; that this can't be done changes nothing of how the program ended."""
        try:
            await self._delete(now=False)
        except (ServerTroubleError, UnreachableError) as error:
            self._warn(f"it could not be deleted: {error.what}")

    async def _delete(self, *, now: bool) -> None:
        meta = self._pod.metadata
        with suppress(NotFoundError):
            await self._connection.client.delete(
                PODS, name=meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0 if now else None
            )
