"""Takes nominations back from pods whose turn has led to nothing.

kube-scheduler keeps a nominated pod's CPU, memory and percent from all others of its priority, and it takes away no
nomination that it has not made itself. So a pod that can't be bound would keep its part of a node for good, and a few
that lost their turns on one node would keep each other from it: on a node with 20 % left, eight pods of 5 % were
refused for ever, with room promised to each of them in turn.
"""

from __future__ import annotations

import logging

from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import NOT_WRITTEN
from aliquot_scheduler.centre.pod_patches import not_nominated
from aliquot_scheduler.deciding.desk import Desk

log = logging.getLogger(__name__)


class Nominations:
    """What is still nominated without room."""

    def __init__(self, *, desk: Desk, client: KubeClient) -> None:
        self._desk = desk
        self._client = client
        self._over: set[str] = set()
        self._asked: set[str] = set()

    def due(self) -> list[Pod]:
        """Whose nomination is to be taken back now; a watch may tell of it only after its turn was over."""
        self._over |= self._desk.missed.turned_away()
        # Whoever has room again is nominated anew, and who is bound or gone holds nothing by it.
        self._over = {uid for uid in self._over if uid in self._desk.pods and self._desk.promises.of(uid) is None}
        found = [self._desk.pods[uid] for uid in self._over - self._asked]
        return [pod for pod in found if pod.status.nominated_node_name and not pod.spec.node_name]

    async def take_back(self, pod: Pod) -> None:
        """Take it back; once more at the next look if that fails."""
        meta = pod.metadata
        self._asked.add(meta.uid)
        try:
            patch = not_nominated(pod)
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status")
            self._over.discard(meta.uid)
        except NOT_WRITTEN as error:
            log.warning("a pod's nomination could not be taken back", extra={"pod": pod.key, "error": str(error)})
        finally:
            self._asked.discard(meta.uid)
