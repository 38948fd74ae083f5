"""What the kubelet writes to the API server, tried until it is written."""

from __future__ import annotations

import asyncio

from aliquot_core.objects import Node, Pod
from aliquot_kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES, PODS
from simulation.universe.api import ApiServer
from simulation.universe.loop import LoopClock, VirtualLoop

LATENCY = 0.005
AGAIN = 1.0


class Reporter:
    """Phases of pods, their removal, the node's status."""

    def __init__(self, *, api: ApiServer, loop: VirtualLoop, clock: LoopClock) -> None:
        self._api = api
        self._loop = loop
        self._clock = clock
        self._wanted: dict[str, tuple[Pod, str, bool]] = {}
        self._writing: set[str] = set()

    def report(self, pod: Pod, *, phase: str, remove: bool) -> None:
        """Have it written; only the newest counts."""
        uid = pod.metadata.uid
        self._wanted[uid] = (pod, phase, remove or (uid in self._wanted and self._wanted[uid][2]))
        if uid not in self._writing:
            self._writing.add(uid)
            self._loop.spawn(self._write(uid), name="status")

    async def node_status(self, node: Node, *, capacity: dict[str, str], allocatable: dict[str, str]) -> None:
        """Merge counts into the node's status, where they differ."""
        if _holds(node.status.capacity, capacity) and _holds(node.status.allocatable, allocatable):
            return
        patch = merge_patch({"status": {"capacity": capacity, "allocatable": allocatable}})
        try:
            await self._api.client.patch(NODES, name=node.metadata.name, patch=patch, subresource="status")
        except ApiError:
            return

    async def _write(self, uid: str) -> None:
        while uid in self._wanted:
            await asyncio.sleep(LATENCY)
            if not self._api.reachable:
                await asyncio.sleep(AGAIN)
                continue
            pod, phase, remove = self._wanted.pop(uid)
            try:
                await self._write_once(pod, phase, remove=remove)
            except (NotFoundError, ConflictError, InvalidError):
                # Gone, or another pod bears its name by now.
                continue
        self._writing.discard(uid)

    async def _write_once(self, pod: Pod, phase: str, *, remove: bool) -> None:
        meta = pod.metadata
        where = {"namespace": meta.namespace, "name": meta.name}
        if phase:
            patch = merge_patch({"metadata": {"uid": meta.uid}, "status": {"phase": phase}})
            await self._api.client.patch(PODS, **where, patch=patch, subresource="status")
        if remove:
            await self._api.client.delete(PODS, **where, uid=meta.uid, grace_seconds=0)


def _holds(have: dict[str, str], want: dict[str, str]) -> bool:
    return all(have.get(name) == value for name, value in want.items())
