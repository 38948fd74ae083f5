"""The leader tells waiting pods why they wait, in a condition of theirs and an Event.

A condition is rewritten only when its gist is another one, and was so for a moment: a pod whose turn comes at once has
none. With Events never more than 20 a second in all: what 5,000 pods wait for may change at one instant.

Writing takes seconds then, and the watch tells of it later still. So each is told what holds when its turn to be told
comes; and one that says that it waits though it was let in is mended, whoever wrote that.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import NamedTuple

from aliquot_core.instants import second_time
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.pod_patches import LET_IN, saying
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.queues.telling.notices import Gist, Notice
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.states import said_of
from aliquot_scheduler.queues.waiting.waiter import Waiter

log = logging.getLogger(__name__)

_LOOK = 2.0
# 15 in any second at most, beside 5 Events.
_BETWEEN = 1 / 14
_MOST_IN_A_LOOK = int(_LOOK / _BETWEEN)
_NOTHING = Gist(reason="")


class _Gists(NamedTuple):
    said: Gist
    wanted: Gist


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
        self._names = means.names
        self._why_not = means.why_not
        # All by UID. Whoever says that it waits; what a pod will say once the watch has told; and what it should say,
        # as of the last look.
        self._waits: dict[str, Pod] = {}
        self._written: dict[str, Gist] = {}
        self._wanted: dict[str, Gist] = {}
        # By queue and word, how many waited at the last look.
        self.reasons = Counter[tuple[str, str]]()
        # Those for whom no word is found, and who can't be told.
        self._wordless = PutOff(what="why a pod waits could not be found", means=means)
        self._untold = PutOff(what="a pod could not be told why it waits", means=means)

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

    @property
    def untold(self) -> int:
        """How often somebody could not be told."""
        return self._wordless.count + self._untold.count

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
        self._wordless.look_begins()
        self._untold.look_begins()
        waiting = {waiter.uid: waiter for waiter in self._turns.register.hall}
        let_in = {uid: pod for uid, pod in self._waits.items() if self._is_let_in(uid)}
        self._written = {uid: gist for uid, gist in self._written.items() if uid in waiting or uid in let_in}
        before, self._wanted = self._wanted, {}
        self.reasons = Counter[tuple[str, str]]()
        due: list[str] = []
        for uid, one in (let_in | waiting).items():
            of = (one if isinstance(one, Pod) else one.pod).key
            gists = self._wordless.attempt(uid, partial(self._gists, one), of=of)
            if gists and self._is_due(uid, gists, before=before.get(uid)):
                due.append(uid)
        return due[:_MOST_IN_A_LOOK]

    def _is_due(self, uid: str, gists: _Gists, *, before: Gist | None) -> bool:
        self._wanted[uid] = gists.wanted
        return before == gists.wanted != gists.said and not self._untold.is_put_off(uid)

    def _gists(self, one: Waiter | Pod) -> _Gists:
        """Of one that waits, or of one that is let in."""
        if isinstance(one, Pod):
            return _Gists(said=self._said(one), wanted=Gist.of(LET_IN))
        word, said = self._turns.word(one), self._said(one.pod)
        wanted = self._turns.gist(one, word, said=said)
        self.reasons[one.queue, word] += 1
        return _Gists(said=said, wanted=wanted)

    def _is_let_in(self, uid: str) -> bool:
        """Of one that says that it waits: as long as its gate is there, that is still to be written with its turn."""
        return uid in self._waits and uid in self._turns.register.inside and not self._waits[uid].spec.scheduling_gates

    def _said(self, pod: Pod) -> Gist:
        if (written := self._written.get(pod.metadata.uid)) is not None:
            return written
        said = said_of(pod, names=self._names)
        return Gist.of(said) if said else _NOTHING

    def _notice(self, uid: str) -> Notice | None:
        """By what holds now: while others were told it may have been let in, or gone."""
        waiter = self._turns.register.hall.find(uid)
        if waiter is None:
            return LET_IN if self._is_let_in(uid) else None
        return self._turns.notice(waiter)

    async def _tell(self, uid: str) -> None:
        waiter = self._turns.register.hall.find(uid)
        if (pod := waiter.pod if waiter else self._waits.get(uid)) is None:
            return
        try:
            notice = self._notice(uid)
            if notice is None or Gist.of(notice) == self._said(pod):
                return
            await self._write(pod, notice)
        except Exception as error:  # noqa: BLE001 - an answer or a defect: it is told of, and others are told theirs
            self._untold.failed(uid, error, of=pod.key)
        else:
            self._untold.is_done(uid)
        await self._clock.sleep(_BETWEEN)

    async def _write(self, pod: Pod, notice: Notice) -> None:
        at, is_in = second_time(self._clock.wall()), notice is LET_IN
        patch = saying(pod, notice, admitted=is_in, names=self._names, at=at)
        meta = pod.metadata
        # Before: the watch may be faster than the answer.
        self._written[meta.uid] = Gist.of(notice)
        try:
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status")
        except Exception:
            self._written.pop(meta.uid, None)
            raise
        self._events.tell(pod, notice, action="Admitting" if is_in else "Queueing")
