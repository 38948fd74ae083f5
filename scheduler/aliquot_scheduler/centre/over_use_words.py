"""Tells each pod that runs how far up the ladder of over-use its queue lets it climb: agents know no queues.

A pod says it within seconds of its binding, well before anybody can be on the ladder (three samples), and something
else when its queue does. Where no queue says anything nothing is written, and the word of the pod's node counts.
"""

from __future__ import annotations

import logging

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.pod_patches import with_over_use
from aliquot_scheduler.centre.tries import Tries
from aliquot_scheduler.queues.said.tree import ROOT, Tree
from aliquot_scheduler.queues.turns import Queues

log = logging.getLogger(__name__)

_LOOK = 2.0


def word_of(queue: str, *, tree: Tree) -> str:
    """A queue's own word, or the nearest above; empty if none of them has one."""
    said = (tree.nodes[name].spec.over_use for name in tree.path(queue) if name != ROOT)
    return next((word for word in said if word), "")


class OverUseWords:
    """What pods that run say, and what they are to say."""

    def __init__(self, *, turns: Queues, means: Means) -> None:
        self._turns = turns
        self._client, self._clock, self._names = means.client, means.clock, means.names
        self._why_not = means.why_not
        # Those that run, by UID; and of whom it is to be looked whether they say what is so.
        self._pods: dict[str, Pod] = {}
        self._due: set[str] = set()
        self._tree: Tree | None = None
        self._tries = Tries()

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells."""
        match change:
            case Deleted(old=pod):
                self._forget(pod)
            case Modified(old=old, new=pod) if old.metadata.uid != pod.metadata.uid:
                self._forget(old)
                self._seen(pod)
            case Added(new=pod) | Modified(new=pod):
                self._seen(pod)

    def word(self, uid: str) -> str:
        """How far a pod's queue lets it climb; empty if its queues leave that to its node."""
        return word_of(self._turns.charged_in(uid), tree=self._turns.books.ledger.tree)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            try:
                await self._write()
            except (UnreachableError, NotLeadingError) as error:
                log.warning("pods could not be told how far over-use goes yet", extra={"error": str(error)})

    def _seen(self, pod: Pod) -> None:
        if pod.spec.node_name and not pod.ended and self._names.grant in pod.metadata.annotations:
            self._pods[pod.metadata.uid] = pod
            self._due.add(pod.metadata.uid)
        else:
            self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        self._pods.pop(pod.metadata.uid, None)
        self._due.discard(pod.metadata.uid)

    async def _write(self) -> None:
        """While one is told, others change, and may be told at the next look."""
        tree = self._turns.books.ledger.tree
        if tree is not self._tree:
            self._tree, self._due = tree, set(self._pods)
        later: set[str] = set()
        try:
            while self._due and not self._why_not():
                uid = self._due.pop()
                later.add(uid)
                if await self._told(self._pods[uid]):
                    later.remove(uid)
        finally:
            self._due |= later & self._pods.keys()

    async def _told(self, pod: Pod) -> bool:
        """Whether it says what is so, or can't be told: no pod may keep others from being told."""
        meta, word = pod.metadata, self.word(pod.metadata.uid)
        if meta.annotations.get(self._names.over_use, "") == word:
            return True
        patch = with_over_use(pod, word, names=self._names)
        try:
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch)
        except (NotFoundError, ConflictError):
            log.info("gone before it was told how far over-use goes", extra={"pod": pod.key})
        except UnreachableError:
            raise
        except ApiError as error:
            log.warning("a pod could not be told how far over-use goes", extra={"pod": pod.key, "error": str(error)})
            return self._tries.fails_for_good(meta.uid, among=self._pods)
        return True
