"""Tells each pod that runs how far up the ladder of over-use its queue lets it climb: agents know no queues.

A pod says it within seconds of its binding, well before anybody can be on the ladder (three samples), and something
else when its queue does. Where no queue says anything nothing is written, and the word of the pod's node counts.
"""

from __future__ import annotations

import logging

from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.errors import ConflictError, NotFoundError, UnreachableError
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import Means
from aliquot_scheduler.centre.pod_patches import with_over_use
from aliquot_scheduler.centre.put_off import PutOff
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
        # By UID: who can't be told.
        self._untold = PutOff(what="a pod could not be told how far over-use goes", means=means)

    @property
    def untold(self) -> int:
        """How often somebody could not be told."""
        return self._untold.count

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
        self._untold.look_begins()
        tree = self._turns.books.ledger.tree
        if tree is not self._tree:
            self._tree, self._due = tree, set(self._pods)
        later: set[str] = set()
        try:
            while self._due and not self._why_not():
                uid = self._due.pop()
                later.add(uid)
                if not self._untold.is_put_off(uid) and await self._told(self._pods[uid]):
                    later.remove(uid)
        finally:
            self._due |= later & self._pods.keys()

    async def _told(self, pod: Pod) -> bool:
        """Whether it says what is so, or is gone."""
        try:
            await self._tell(pod)
        except (NotFoundError, ConflictError):
            log.info("gone before it was told how far over-use goes", extra={"pod": pod.key})
        except (UnreachableError, NotLeadingError):
            raise
        except Exception as error:  # noqa: BLE001 - an answer or a defect: it is told of, and others are told theirs
            self._untold.failed(pod.metadata.uid, error, of=pod.key)
            return False
        self._untold.is_done(pod.metadata.uid)
        return True

    async def _tell(self, pod: Pod) -> None:
        meta, word = pod.metadata, self.word(pod.metadata.uid)
        if meta.annotations.get(self._names.over_use, "") != word:
            patch = with_over_use(pod, word, names=self._names)
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch)
