"""The leader tells waiting pods why they wait, in a condition of theirs and an Event; and sends broken gangs back.

A condition is rewritten only when its reason is another one, and was so for a moment: a pod whose turn comes at once
has none. With Events never more than 20 a second in all: what 5,000 pods wait for may change at one instant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from aliquot_core.clock import Clock
from aliquot_core.instants import second_time
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.pod_events import PodEvents
from aliquot_scheduler.centre.pod_patches import said_of, saying
from aliquot_scheduler.queues.line import Waiter
from aliquot_scheduler.queues.notices import Notice
from aliquot_scheduler.queues.turns import Queues

log = logging.getLogger(__name__)

_LOOK = 2.0
# 15 in any second at most, beside 5 Events.
_BETWEEN = 1 / 14
# A pod that was asked to go may take its time, or a disruption budget may forbid it.
_ASK_AGAIN = 30.0


class NoticeWriter:
    """Keeps conditions right, and asks stale gangs to go."""

    def __init__(
        self,
        *,
        turns: Queues,
        client: KubeClient,
        clock: Clock,
        names: Names,
        events: PodEvents,
        why_not: Callable[[], str],
    ) -> None:
        self._turns = turns
        self._events = events
        self._client = client
        self._clock = clock
        self._names = names
        self._why_not = why_not
        # What the pod will say once the watch has told; and what it should say, as of the last look.
        self._written: dict[str, str] = {}
        self._wanted: dict[str, str] = {}
        self._asked: dict[str, float] = {}

    async def run(self) -> None:
        """Write what is due until cancelled."""
        while True:
            began = self._clock.monotonic()
            if not self._why_not():
                for waiter, notice in self._due():
                    await self._tell(waiter, notice)
                await self._send_back()
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(_BETWEEN, _LOOK - spent))

    def _due(self) -> list[tuple[Waiter, Notice]]:
        """Whose reason is another one than is written, and was so at the last look; as many as can be told now."""
        waiting = {waiter.uid: (waiter, self._turns.word(waiter)) for waiter in self._turns.waiting()}
        before, self._wanted = self._wanted, {uid: word for uid, (_, word) in waiting.items()}
        self._written = {uid: reason for uid, reason in self._written.items() if uid in waiting}
        due = [waiter for uid, (waiter, word) in waiting.items() if before.get(uid) == word != self._said(waiter.pod)]
        return [(waiter, self._turns.notice(waiter)) for waiter in due[: int(_LOOK / _BETWEEN)]]

    def _said(self, pod: Pod) -> str:
        if (written := self._written.get(pod.metadata.uid)) is not None:
            return written
        said = said_of(pod, names=self._names)
        return said.reason if said else ""

    async def _tell(self, waiter: Waiter, notice: Notice) -> None:
        meta = waiter.pod.metadata
        patch = saying(waiter.pod, notice, admitted=False, names=self._names, at=second_time(self._clock.wall()))
        try:
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status")
        except (ApiError, NotLeadingError) as error:
            log.info("a pod could not be told why it waits", extra={"pod": waiter.pod.key, "error": str(error)})
        else:
            self._events.tell(waiter.pod, notice, action="Queueing")
        self._written[meta.uid] = notice.reason
        await self._clock.sleep(_BETWEEN)

    async def _send_back(self) -> None:
        now = self._clock.monotonic()
        stale = self._turns.stale_gangs(now=now)
        self._asked = {pod.metadata.uid: self._asked.get(pod.metadata.uid, -_ASK_AGAIN) for pod in stale}
        for pod in stale:
            uid = pod.metadata.uid
            if now - self._asked[uid] < _ASK_AGAIN:
                continue
            self._asked[uid] = now
            try:
                await self._client.evict(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=uid)
            except (ApiError, NotLeadingError) as error:
                log.warning("a gang's pod could not be sent back", extra={"pod": pod.key, "error": str(error)})
            else:
                log.info("sent back, since its gang can't run", extra={"pod": pod.key})
            await self._clock.sleep(_BETWEEN)
