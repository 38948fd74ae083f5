"""Tells pods where room is being made for them, before anybody is asked to go; and that none is any more.

It is for the next leader (`queues/room/recalling.py`). Whoever is let in goes on saying so: its binding may be still
to come when the leader dies. Who is bound says on where room is kept for those who were moved for it, until it is kept
no more. Of thousands of pods only those are looked at for whom room is made, or who say something of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError, UnreachableError
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.pod_patches import with_room
from aliquot_scheduler.centre.put_off import PutOff
from aliquot_scheduler.centre.tries import Tries
from aliquot_scheduler.queues.room.clearings import Clearing
from aliquot_scheduler.queues.room.recalling import words_for, words_left
from aliquot_scheduler.queues.turns import Queues
from aliquot_scheduler.queues.waiting.waiter import Waiter

log = logging.getLogger(__name__)


class RoomWriter:
    """What pods that wait are to say of room, and what they say."""

    def __init__(self, *, turns: Queues, means: Means) -> None:
        self._turns = turns
        self._client = means.client
        self._names = means.names
        # Whose annotation says something, as the watch tells (UIDs), in that order.
        self._saying: dict[str, None] = {}
        # What was written; the watch may tell of it later.
        self._written: dict[str, str] = {}
        self._tries = Tries()
        # By UID: who can't be told, and for whom no words are found. They keep nobody else.
        self._untold = PutOff(what="a pod could not be told of its room", means=means)
        self._wordless = PutOff(what="what a pod is to say of its room could not be worked out", means=means)

    @property
    def untold(self) -> int:
        """How often somebody could not be told for a defect of ours."""
        return self._untold.count + self._wordless.count

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Deleted(old=pod):
                self._saying.pop(pod.metadata.uid, None)
            case Modified(old=old, new=pod):
                self._saying.pop(old.metadata.uid, None)
                self._seen(pod)
            case Added(new=pod):
                self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        uid, says = pod.metadata.uid, pod.metadata.annotations.get(self._names.room, "")
        if says:
            self._saying[uid] = None
        if self._written.get(uid) == says:
            del self._written[uid]

    async def write(self) -> None:
        """Write whatever is not said yet, or no more true; each once."""
        tried: set[str] = set()
        for put_off in (self._untold, self._wordless):
            put_off.look_begins()
        while (due := next((one for one in self._due() if one[0].metadata.uid not in tried), None)) is not None:
            tried.add(due[0].metadata.uid)
            await self._tell(*due)

    def has_told(self, clearing: Clearing) -> bool:
        """Whether all for whom it is say so, or can't be told."""
        return all(self._said(pod) == words for pod, words in self._wanted_by(clearing))

    def _due(self) -> Iterator[tuple[Pod, str]]:
        """Clearings come and go while something is written."""
        register = self._turns.register
        hall, bound = register.hall, register.inside.bound
        self._written = {uid: words for uid, words in self._written.items() if uid in hall or uid in bound}
        for clearing in register.clearings:
            yield from (due for due in self._wanted_by(clearing) if self._said(due[0]) != due[1])
        kept = register.refuges.movers()
        for uid in self._saying | dict.fromkeys(self._written):
            if (waiter := hall.find(uid)) is not None:
                wanted = self._said(waiter.pod) if uid in register.clearings else ""
            elif (waiter := bound.get(uid)) is not None:
                said = self._said(waiter.pod)
                left = self._words(waiter, partial(words_left, said, kept=kept))
                wanted = said if left is None else left
            else:
                continue
            if self._said(waiter.pod) != wanted:
                yield waiter.pod, wanted

    def _words(self, waiter: Waiter, make: Callable[[], str]) -> str | None:
        return self._wordless.attempt(waiter.uid, make, of=waiter.pod.key)

    def _known(self) -> set[str]:
        """Who waits or is bound (UIDs)."""
        register = self._turns.register
        return {waiter.uid for waiter in register.hall} | register.inside.bound.keys()

    def _wanted_by(self, clearing: Clearing) -> Iterator[tuple[Pod, str]]:
        refuges = self._turns.register.refuges.of(clearing.uid)
        for place in clearing.places:
            if (waiter := self._turns.register.hall.resting(place.waiter.uid)) is None:
                continue
            words = self._words(waiter, partial(words_for, clearing, place, refuges=refuges))
            if words is not None:
                yield waiter.pod, words

    def _said(self, pod: Pod) -> str:
        said = pod.metadata.annotations.get(self._names.room, "")
        return self._written.get(pod.metadata.uid, said)

    async def _tell(self, pod: Pod, words: str) -> None:
        """One that can't be told is passed: no pod may keep others from what is theirs."""
        meta = pod.metadata
        try:
            patch = with_room(pod, words, names=self._names)
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch)
        except (NotFoundError, ConflictError):
            log.info("gone before it was told of its room", extra={"pod": pod.key})
        except (ForbiddenError, InvalidError) as error:
            log.warning("a pod could not be told of its room", extra={"pod": pod.key, "error": str(error)})
        except (UnreachableError, NotLeadingError):
            raise
        except ApiError as error:
            log.warning("a pod could not be told of its room yet", extra={"pod": pod.key, "error": str(error)})
            if not self._tries.fails_for_good(meta.uid, among=self._known()):
                return
        except Exception as error:  # noqa: BLE001 - a defect of ours with this one: others are told
            self._untold.failed(meta.uid, error, of=pod.key)
        self._written[meta.uid] = words
