"""A live, read-only copy of a part of the API server's objects: the reflector, driven."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Generic

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_kube.changes import Added, Change, Synced
from aliquot_kube.errors import ApiError, NotFoundError
from aliquot_kube.questions import Question, Timeouts, Transport
from aliquot_kube.reflector import FetchPage, Freshness, OpenWatch, Reflector, Rest, Tuning
from aliquot_kube.resources import Resource, T

# A server that is alive ends the watch by itself; so much later we do.
_OVERTIME = 15.0
# It also says something each minute, a bookmark if nothing else. A watch that was silent for so long may be half open
# (its server's machine lost power, a gateway forgot it): a new one is asked, before anybody stops trusting the copy.
SILENCE = 90.0


class Mirror(Generic[T]):
    """One kind of objects, all of them or those that selectors and a namespace choose."""

    def __init__(
        self,
        *,
        transport: Transport,
        clock: Clock,
        random: Random,
        resource: Resource[T],
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        tuning: Tuning | None = None,
        may_be_absent: bool = False,
        silence: float = SILENCE,
    ) -> None:
        """`may_be_absent` takes a resource that is not installed for one of which there are no objects.

        A watch that was silent for `silence` seconds is opened anew.
        """
        self._transport = transport
        self._clock = clock
        self._path = resource.collection(namespace)
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self._selectors = {name: value for name, value in selectors.items() if value}
        self._reflector = Reflector(kind=resource.type, random=random, tuning=tuning)
        self._may_be_absent = may_be_absent
        self._silence = silence
        self._consumers: list[Callable[[Change[T]], None]] = []
        self._synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, T]:
        """All objects by `namespace/name` (or name): live, read-only, for the loop's own thread."""
        return self._reflector.objects

    def freshness(self) -> Freshness:
        """How old our knowledge is."""
        return self._reflector.freshness(now=self._clock.monotonic())

    async def synced(self) -> None:
        """Wait until the first list is whole."""
        await self._synced.wait()

    def subscribe(self, consumer: Callable[[Change[T]], None]) -> None:
        """Tell somebody of all that is known, and then of each change.

        Consumers are called one after another on the loop and must not wait: whoever has long work puts it aside.
        What they raise ends `run`: a consumer that missed a change would be wrong for ever. Who may be guards himself.
        """
        for known in self.objects.values():
            consumer(Added(new=known))
        if self._synced.is_set():
            consumer(Synced(resource_version=self._reflector.resource_version))
        self._consumers.append(consumer)

    async def run(self) -> None:
        """Keep the copy true until cancelled."""
        while True:
            wanted = self._reflector.intent
            if isinstance(wanted, Rest):
                await self._clock.sleep(wanted.seconds)
                self._reflector.rested()
                continue
            try:
                await (self._fetch(wanted) if isinstance(wanted, FetchPage) else self._watch(wanted))
            except ApiError as error:
                self._reflector.failed(error, now=self._clock.monotonic())

    async def _fetch(self, wanted: FetchPage) -> None:
        asked_at = self._clock.monotonic()
        query = {**self._selectors}
        if wanted.limit:
            query["limit"] = str(wanted.limit)
        if wanted.token:
            query["continue"] = wanted.token
        try:
            answer = await self._transport.request(Question(method="GET", path=self._path, query=query))
        except NotFoundError:
            if not self._may_be_absent:
                raise
            self._tell(self._reflector.absent(asked_at=asked_at, now=self._clock.monotonic()))
            return
        self._tell(self._reflector.page(answer.body, asked_at=asked_at, now=self._clock.monotonic()))

    async def _watch(self, wanted: OpenWatch) -> None:
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": wanted.resource_version,
            "timeoutSeconds": str(wanted.timeout_seconds),
        }
        timeouts = Timeouts(silence=min(self._silence, wanted.timeout_seconds + _OVERTIME))
        async with self._transport.stream(
            Question(method="GET", path=self._path, query=query, timeouts=timeouts)
        ) as lines:
            self._reflector.opened(now=self._clock.monotonic())
            async for line in lines:
                self._tell(self._reflector.line(line, now=self._clock.monotonic()))
                if self._reflector.intent is not wanted:
                    return
        self._reflector.ended(now=self._clock.monotonic())

    def _tell(self, changes: list[Change[T]]) -> None:
        for change in changes:
            for consumer in self._consumers:
                consumer(change)
            if isinstance(change, Synced):
                self._synced.set()
