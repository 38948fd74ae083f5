"""The small kubelet's doors on the real client: pods from a mirror, status through the transport.

Statuses are strategic merge patches, as the real kubelet's are: of conditions only those of the same type are
replaced, so what others say of a pod or a node stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.objects import Node, Pod
from aliquot_kube.changes import Change
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from aliquot_kube.mirror import Mirror
from aliquot_kube.patches import strategic_patch
from aliquot_kube.questions import Question, Transport
from aliquot_kube.resources import NODES, PODS


class ApiDoors:
    """Source and sink of one node."""

    def __init__(self, *, node: str, transport: Transport, clock: Clock, random: Random) -> None:
        self._transport = transport
        self._client = KubeClient(transport=transport)
        self._pods = Mirror(
            transport=transport, clock=clock, random=random, resource=PODS, field_selector=f"spec.nodeName={node}"
        )

    async def changes(self) -> AsyncIterator[Change[Pod]]:
        """Follow the pods bound to the node for ever."""
        queue: asyncio.Queue[Change[Pod]] = asyncio.Queue()
        self._pods.subscribe(queue.put_nowait)
        following = asyncio.ensure_future(self._pods.run())
        try:
            while True:
                upcoming = asyncio.ensure_future(queue.get())
                await asyncio.wait({upcoming, following}, return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    upcoming.cancel()
                    # It ends by a defect only, which must not look like silence.
                    following.result()
                yield await upcoming
        finally:
            following.cancel()

    async def write_pod_status(self, pod: Pod, status: dict[str, Any]) -> None:
        """Merge the status in; conditions that others wrote stay."""
        # The uid is a precondition: a pod made anew under the name is another.
        patch = strategic_patch({"metadata": {"uid": pod.metadata.uid}, "status": _whole_conditions(status)})
        namespace, name = pod.metadata.namespace, pod.metadata.name
        try:
            await self._client.patch(PODS, namespace=namespace, name=name, patch=patch, subresource="status")
        except (NotFoundError, ConflictError):
            return

    async def remove_pod(self, pod: Pod) -> None:
        """Delete with grace 0, this pod and no other."""
        namespace, name, uid = pod.metadata.namespace, pod.metadata.name, pod.metadata.uid
        try:
            await self._client.delete(PODS, namespace=namespace, name=name, uid=uid, grace_seconds=0)
        except (NotFoundError, ConflictError):
            return

    async def read_node(self, name: str) -> Node | None:
        """Our Node, if it is there."""
        try:
            return await self._client.get(NODES, name=name)
        except NotFoundError:
            return None

    async def create_node(self, node: dict[str, Any]) -> None:
        """Create our Node, unless it is there."""
        body = msgspec.json.encode(node)
        question = Question(method="POST", path=NODES.collection(), body=body, content_type="application/json")
        try:
            await self._transport.request(question)
        except AlreadyExistsError:
            return

    async def write_node_status(self, name: str, status: dict[str, Any]) -> None:
        """Merge into our Node's status."""
        patch = strategic_patch({"status": _whole_conditions(status)})
        await self._client.patch(NODES, name=name, patch=patch, subresource="status")


def _whole_conditions(status: dict[str, Any]) -> dict[str, Any]:
    """Say what a condition does not have, or an old reason would stay beside a new state."""
    whole = [{"reason": None, "message": None, **condition} for condition in status["conditions"]]
    return {**status, "conditions": whole}
