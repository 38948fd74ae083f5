"""The leader tells waiting pods why they wait, in a condition of theirs and an Event.

A condition is rewritten only when its gist is another one, and was so for a moment: a pod whose turn comes at once has
none. With Events never more than 20 a second in all: what 5,000 pods wait for may change at one instant.

Writing takes seconds then, and the watch tells of it later still. So each is told what holds when its turn to be told
comes; and one that says that it waits though it was let in is mended, whoever wrote that.
"""

from __future__ import annotations

import logging
from collections import Counter

from aliquot_core.backoff import Backoff
from aliquot_core.instants import second_time
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means
from aliquot_scheduler.centre.pod_patches import LET_IN, saying
from aliquot_scheduler.queues.telling.notices import Gist, Notice
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.states import said_of

log = logging.getLogger(__name__)

_LOOK = 2.0
# 15 in any second at most, beside 5 Events.
_BETWEEN = 1 / 14
_MOST_IN_A_LOOK = int(_LOOK / _BETWEEN)
# Those that can't be told are not to take up what others are told in.
_AGAIN = Backoff(first=4.0, longest=300.0)
_NOTHING = Gist(reason="")


class NoticeWriter:
    """Keeps conditions right."""

    def __init__(
        self,
        *,
        turns: Queues,
        means: Means,
    ) -> None:
        self._turns = turns
        self._events = means.events
        self._client = means.client
        self._clock = means.clock
        self._random = means.random
        self._names = means.names
        self._why_not = means.why_not
        # All by UID. Whoever says that it waits; what a pod will say once the watch has told; and what it should say,
        # as of the last look.
        self._waits: dict[str, Pod] = {}
        self._written: dict[str, Gist] = {}
        self._wanted: dict[str, Gist] = {}
        # By queue and word, how many waited at the last look.
        self.reasons = Counter[tuple[str, str]]()
        # How often a pod could not be told, and when to try again.
        self._failures: dict[str, tuple[int, float]] = {}

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Deleted(old=pod):
                self._waits.pop(pod.metadata.uid, None)
            case Modified(old=old, new=pod):
                self._waits.pop(old.metadata.uid, None)
                self._seen(pod)
            case Added(new=pod):
                self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        uid, said = pod.metadata.uid, said_of(pod, names=self._names)
        if said is not None and said.status == "False":
            self._waits[uid] = pod
        if said is not None and Gist.of(said) == self._written.get(uid):
            # From now on it says so itself, and what others write on it counts.
            del self._written[uid]

    async def run(self) -> None:
        """Write what is due until cancelled."""
        while True:
            began = self._clock.monotonic()
            try:
                await self._look()
            except Exception:  # a defect of ours: nobody is told why they wait, and the centre goes on deciding
                log.exception("pods could not be told why they wait")
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(_BETWEEN, _LOOK - spent))

    async def _look(self) -> None:
        if not self._why_not():
            for uid in self._due():
                if not self._why_not():
                    await self._tell(uid)

    def _due(self) -> list[str]:
        """Whose gist is another one than is written, and was so at the last look; as many as can be told now."""
        now = self._clock.monotonic()
        said = {uid: self._said(pod) for uid, pod in self._waits.items() if self._is_let_in(uid)}
        wanted = dict.fromkeys(said, Gist.of(LET_IN))
        self.reasons = Counter[tuple[str, str]]()
        for waiter, word in self._turns.words():
            says = self._said(waiter.pod)
            said[waiter.uid], wanted[waiter.uid] = says, self._turns.gist(waiter, word, said=says)
            self.reasons[waiter.queue, word] += 1
        before, self._wanted = self._wanted, wanted
        self._written = {uid: gist for uid, gist in self._written.items() if uid in wanted}
        self._failures = {uid: failed for uid, failed in self._failures.items() if uid in wanted}
        put_off = {uid for uid, (_, until) in self._failures.items() if now < until}
        due = [uid for uid, gist in wanted.items() if before.get(uid) == gist != said[uid] and uid not in put_off]
        return due[:_MOST_IN_A_LOOK]

    def _is_let_in(self, uid: str) -> bool:
        """Of one that says that it waits: as long as its gate is there, that is still to be written with its turn."""
        return uid in self._waits and uid in self._turns.register.inside and not self._waits[uid].spec.scheduling_gates

    def _said(self, pod: Pod) -> Gist:
        if (written := self._written.get(pod.metadata.uid)) is not None:
            return written
        said = said_of(pod, names=self._names)
        return Gist.of(said) if said else _NOTHING

    def _to_tell(self, uid: str) -> tuple[Pod, Notice] | None:
        """By what holds now: while others were told it may have been let in, or gone."""
        register = self._turns.register
        if (waiter := register.hall.find(uid)) is not None:
            pod, notice = waiter.pod, self._turns.notice(waiter)
        elif self._is_let_in(uid):
            pod, notice = self._waits[uid], LET_IN
        else:
            return None
        return None if Gist.of(notice) == self._said(pod) else (pod, notice)

    async def _tell(self, uid: str) -> None:
        if (told := self._to_tell(uid)) is None:
            return
        pod, notice = told
        at, is_in = second_time(self._clock.wall()), notice is LET_IN
        patch = saying(pod, notice, admitted=is_in, names=self._names, at=at)
        meta = pod.metadata
        # Before: the watch may be faster than the answer.
        self._written[uid] = Gist.of(notice)
        try:
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status")
        except NOT_WRITTEN as error:
            log.info("a pod could not be told of its turn", extra={"pod": pod.key, "error": str(error)})
            self._failed(uid)
        else:
            self._failures.pop(uid, None)
            self._events.tell(pod, notice, action="Admitting" if is_in else "Queueing")
        await self._clock.sleep(_BETWEEN)

    def _failed(self, uid: str) -> None:
        self._written.pop(uid, None)
        times = self._failures.get(uid, (0, 0.0))[0] + 1
        self._failures[uid] = times, self._clock.monotonic() + _AGAIN.delay(failures=times, random=self._random)
