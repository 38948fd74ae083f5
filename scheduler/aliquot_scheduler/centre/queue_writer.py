"""The leader puts down every queue's status: for people, and so that the next leader knows who used how much lately.

What changes with every pod is written at most every few seconds, usage alone once a minute, and never more than ten
queues a second: a status is a courtesy to people, and the API server's time is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from aliquot_core.instants import second_time
from aliquot_core.objects import Queue
from aliquot_kube.patches import add, json_patch
from aliquot_kube.resources import queues_of
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.put_off import Made, PutOff
from aliquot_scheduler.queues.said.contradictions import problems_by_queue
from aliquot_scheduler.queues.said.entry import specs_of
from aliquot_scheduler.queues.said.tree import ROOT
from aliquot_scheduler.queues.telling.report import named
from aliquot_scheduler.queues.telling.status import Amounts, QueueStatus, read_status
from aliquot_scheduler.queues.turns import Queues

log = logging.getLogger(__name__)

_LOOK = 5.0
_USAGE = 60.0
_BETWEEN = 0.1


class QueueWriter:
    """Keeps the statuses of all queues that are there."""

    def __init__(
        self,
        *,
        turns: Queues,
        there: Callable[[], Mapping[str, Queue]],
        means: Means,
        not_before: Callable[[], str] = str,
    ) -> None:
        """`there` is every Queue object by its name; `not_before` a time that the API server has told of, if any."""
        self._turns = turns
        self._client = means.client
        self._clock = means.clock
        self._resource = queues_of(means.names)
        self._there = there
        self._not_before = not_before
        self._why_not = means.why_not
        # By name and UID: one that is deleted and made anew within one look says nothing yet.
        self._written: dict[tuple[str, str], tuple[float, QueueStatus]] = {}
        # The specs that were judged last, and what is wrong with them.
        self._judged: tuple[dict[str, dict[str, Any]], dict[str, tuple[str, ...]]] = {}, {}
        # What was worked out last, for whoever scrapes.
        self.latest: dict[str, QueueStatus] = {}
        # Those whose status can't be worked out, or judged, or written.
        self._unread = PutOff(what="what a queue's status says of usage could not be read", means=means)
        self._statusless = PutOff(what="a queue's status could not be worked out", means=means)
        self._unjudged = PutOff(what="what is wrong with queues could not be found", means=means)
        self._unwritten = PutOff(what="a queue's status could not be written", means=means)

    @property
    def untold(self) -> int:
        """How often something of a queue could not be told."""
        return self._unread.count + self._statusless.count + self._unjudged.count + self._unwritten.count

    def recall(self) -> None:
        """What the leader before us has put down: of a queue of which it can't be read nothing was used."""
        found = {
            name: self._unread.attempt(name, partial(read_status, queue.status), of=named(name))
            for name, queue in self._there().items()
        }
        self._turns.recall(
            {name: status for name, status in found.items() if status},
            wall=self._clock.wall(),
            now=self._clock.monotonic(),
            attempt=self._attempt_to_read,
        )

    def _attempt_to_read(self, queue: str, make: Callable[[], Made], /) -> Made | None:
        return self._unread.attempt(queue, make, of=named(queue))

    async def run(self) -> None:
        """Write what has changed, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            try:
                await self._look()
            except Exception:  # a defect of ours: statuses stand still, and the centre goes on deciding
                log.exception("statuses of queues could not be brought up to date")

    async def _look(self) -> None:
        if self._why_not():
            return
        for put_off in (self._statusless, self._unjudged, self._unwritten):
            put_off.look_begins()
        now = self._clock.monotonic()
        self.latest = self._statuses(now=now)
        there = {(name, queue.metadata.uid) for name, queue in self._there().items()}
        for gone in self._written.keys() - there:
            del self._written[gone]
        for one in sorted(there):
            status = self.latest.get(one[0])
            if status is not None and self._is_due(one, status, now=now) and not self._unwritten.is_put_off(one):
                await self._write(one, status, now=now)

    def _statuses(self, *, now: float) -> dict[str, QueueStatus]:
        """Of every queue, also of one that hangs on nothing: it says so."""
        # The next leader lets usage age since then: by a clock that was set back here, it would forget too much.
        at = max(second_time(self._clock.wall()), self._not_before())
        found = self._turns.statuses(now=now, at=at, attempt=self._attempt)
        for name, problems in self._problems().items():
            status = found.get(name, QueueStatus(at=at))
            found[name] = msgspec.structs.replace(status, problems=(*problems, *status.problems))
        return found

    def _problems(self) -> dict[str, tuple[str, ...]]:
        """Worked out anew when a spec has changed: 1 ms for each 50 queues."""
        there = self._there()
        specs = {name: queue.spec for name, queue in there.items()}
        if specs != self._judged[0]:
            judge = partial(_problems_of, there.values())
            if (problems := self._unjudged.attempt(ROOT, judge, of="all queues")) is None:
                return {}
            self._judged = specs, problems
        return self._judged[1]

    def _attempt(self, queue: str, make: Callable[[], Made], /) -> Made | None:
        return self._statusless.attempt(queue, make, of=named(queue))

    def _is_due(self, one: tuple[str, str], status: QueueStatus, *, now: float) -> bool:
        if one not in self._written:
            return True
        when, written = self._written[one]
        if _of_the_moment(status) != _of_the_moment(written):
            return True
        return now - when >= _USAGE and (status.lately, status.users) != (written.lately, written.users)

    async def _write(self, one: tuple[str, str], status: QueueStatus, *, now: float) -> None:
        name, _ = one
        patch = json_patch(add("/status", msgspec.to_builtins(status)))
        try:
            await self._client.patch(self._resource, name=name, patch=patch, subresource="status")
        except Exception as error:  # noqa: BLE001 - an answer or a defect: it is told of, and others get theirs
            self._unwritten.failed(one, error, of=f"queue {name}")
        else:
            self._unwritten.is_done(one)
            self._written[one] = now, status
        await self._clock.sleep(_BETWEEN)


def _problems_of(queues: Iterable[Queue]) -> dict[str, tuple[str, ...]]:
    return problems_by_queue(specs_of(queues))


def _of_the_moment(status: QueueStatus) -> QueueStatus:
    """All but what changes by itself."""
    return msgspec.structs.replace(status, lately=Amounts(), users={}, at="")
