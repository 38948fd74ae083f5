"""The leader keeps a view of each queue in the namespaces that have to do with it, for people with rights there alone.

A view says again what the queue's status says, worked out anew: of the status that was worked out last, the sums would
be of another instant than the namespace's own part beside them. They are written at most five a second, whatever
changes. What there is already is read once, when the first is to be written; where the kind is not installed nothing
is written at all.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_core.names import Names
from aliquot_core.objects import Namespace, ObjectMeta
from aliquot_kube.errors import AlreadyExistsError, ApiError, NotFoundError
from aliquot_kube.patches import add, json_patch
from aliquot_kube.resources import Resource
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import Made, PutOff
from aliquot_scheduler.queues.said.entry import home_of
from aliquot_scheduler.queues.telling.report import SHARES, named
from aliquot_scheduler.queues.telling.views import View, Where, of_the_moment, views
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter

log = logging.getLogger(__name__)

_LOOK = 5.0
_BETWEEN = 0.2
# Where it is not installed, it may be later.
_ABSENT = 60.0


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The object in the namespace; its name is the queue's."""

    metadata: ObjectMeta = ObjectMeta()
    status: dict[str, Any] = {}


def views_of(names: Names) -> Resource[QueueView]:
    """Their place in the API."""
    return Resource(group=names.domain, version="v1alpha1", plural="queueviews", kind="QueueView", type=QueueView)


class ViewWriter:
    """Keeps the views of all namespaces."""

    def __init__(
        self,
        *,
        turns: Queues,
        namespaces: Callable[[], Mapping[str, Namespace]],
        means: Means,
    ) -> None:
        """`namespaces` are all there are."""
        self._turns = turns
        self._client = means.client
        self._clock = means.clock
        self._names = means.names
        self._resource = views_of(means.names)
        self._namespaces = namespaces
        self._why_not = means.why_not
        # What is there, as far as we know it; None is nothing that we have written.
        self._there: dict[Where, View | None] = {}
        # Of what a view is made (namespace and queue, or a queue's status alone, or a pod's UID), and what is written.
        self._unmade = PutOff(what="what a namespace is shown of a queue could not be worked out", means=means)
        self._unwritten = PutOff(what="a view of a queue could not be written", means=means)

    @property
    def untold(self) -> int:
        """How often something could not be shown."""
        return self._unmade.count + self._unwritten.count

    async def run(self) -> None:
        """Write what has changed, until cancelled."""
        while not await self._is_read():
            await self._clock.sleep(_ABSENT)
        while True:
            await self._clock.sleep(_LOOK)
            try:
                await self._look()
            except Exception:  # a defect of ours: views stand still, and the centre goes on deciding
                log.exception("views of queues could not be brought up to date")

    async def _look(self) -> None:
        # Of queues nothing is known for sure.
        if self._why_not():
            return
        for put_off in (self._unmade, self._unwritten):
            put_off.look_begins()
        wanted = self._wanted()
        if (SHARES,) in self._unmade:
            # A share of 0 would be no word of it: views go on saying what they did.
            return
        for where in sorted(self._there.keys() - wanted.keys()):
            # Of whom nothing is known now goes on saying what it did.
            if where not in self._unmade and where[1:] not in self._unmade:
                await self._write(where, partial(self._let_go, where))
        for where, view in wanted.items():
            known = self._there.get(where)
            if known is None or of_the_moment(known) != of_the_moment(view):
                await self._write(where, partial(self._keep, where, view))

    def _wanted(self) -> dict[Where, View]:
        namespaces = self._namespaces()
        homes = {name: home for name, one in namespaces.items() if (home := home_of(one, names=self._names))}
        at = second_time(self._clock.wall())
        statuses = self._turns.statuses(now=self._clock.monotonic(), at=at, attempt=self._status)
        found = views(
            self._turns.books,
            waiting=self._turns.waiting(),
            statuses=statuses,
            homes=homes,
            at=at,
            words=self._turns.words(attempt=self._word),
            attempt=self._view,
        )
        # With a namespace goes all that is in it, and nothing can be made there any more.
        return {where: view for where, view in found.items() if _lasts(namespaces.get(where[0]))}

    def _status(self, queue: str, make: Callable[[], Made], /) -> Made | None:
        return self._unmade.attempt((queue,), make, of=named(queue))

    def _word(self, waiter: Waiter, make: Callable[[], Made], /) -> Made | None:
        return self._unmade.attempt(waiter.uid, make, of=f"pod {waiter.pod.key}")

    def _view(self, where: Where, make: Callable[[], Made], /) -> Made | None:
        return self._unmade.attempt(where, make, of=_named(where))

    async def _is_read(self) -> bool:
        try:
            there = await self._client.list(self._resource)
        except NotFoundError:
            return False
        except ApiError as error:
            log.warning("the views of queues could not be read", extra={"error": str(error)})
            return False
        self._there = {(one.metadata.namespace, one.metadata.name): None for one in there}
        return True

    async def _keep(self, where: Where, view: View) -> None:
        namespace, queue = where
        body = msgspec.to_builtins(view)
        try:
            if where in self._there:
                patch = json_patch(add("/status", body))
                await self._client.patch(self._resource, namespace=namespace, name=queue, patch=patch)
            else:
                await self._client.create(
                    self._resource, QueueView(metadata=ObjectMeta(namespace=namespace, name=queue), status=body)
                )
        except NotFoundError:
            # Somebody has deleted it, or its namespace.
            self._there.pop(where, None)
        except AlreadyExistsError:
            self._there[where] = None
        else:
            self._there[where] = view

    async def _let_go(self, where: Where) -> None:
        namespace, queue = where
        with suppress(NotFoundError):
            await self._client.delete(self._resource, namespace=namespace, name=queue)
        del self._there[where]

    async def _write(self, where: Where, write: Callable[[], Awaitable[None]]) -> None:
        if self._unwritten.is_put_off(where):
            return
        try:
            await write()
        except Exception as error:  # noqa: BLE001 - an answer or a defect: it is told of, and others get theirs
            self._unwritten.failed(where, error, of=_named(where))
        else:
            self._unwritten.is_done(where)
        await self._clock.sleep(_BETWEEN)


def _named(where: Where) -> str:
    return f"view {'/'.join(where)}"


def _lasts(namespace: Namespace | None) -> bool:
    return namespace is not None and not namespace.metadata.deletion_timestamp
