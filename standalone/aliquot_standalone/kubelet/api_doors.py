"""The small kubelet's doors on the real client: pods from a mirror, status through the transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.objects import Node, Pod
from aliquot_kube.backoff import Random
from aliquot_kube.changes import Change
from aliquot_kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from aliquot_kube.mirror import Mirror
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES, PODS
from aliquot_kube.transport import Question, Transport


class ApiDoors:
    """Source and sink of one node."""

    def __init__(self, *, node: str, transport: Transport, clock: Clock, random: Random) -> None:
        self._transport = transport
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
                yield await queue.get()
        finally:
            following.cancel()

    async def write_pod_status(self, pod: Pod, status: dict[str, Any]) -> None:
        """Merge the status in; conditions that others wrote stay."""
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="status")
        try:
            # The uid is a precondition: a pod made anew under the name is another.
            await self._patch(path, {"metadata": {"uid": pod.metadata.uid}, "status": status})
        except (NotFoundError, ConflictError):
            return

    async def remove_pod(self, pod: Pod) -> None:
        """Delete with grace 0, this pod and no other."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name)
        try:
            await self._send("DELETE", path, body)
        except (NotFoundError, ConflictError):
            return

    async def read_node(self, name: str) -> Node | None:
        """Our Node, if it is there."""
        try:
            answer = await self._transport.request(Question(method="GET", path=NODES.path(name=name)))
        except NotFoundError:
            return None
        return msgspec.json.decode(answer.body, type=Node)

    async def create_node(self, node: dict[str, Any]) -> None:
        """Create our Node, unless it is there."""
        try:
            await self._send("POST", NODES.collection(), node)
        except AlreadyExistsError:
            return

    async def write_node_status(self, name: str, status: dict[str, Any]) -> None:
        """Merge into our Node's status."""
        await self._patch(NODES.path(name=name, subresource="status"), {"status": status})

    async def _patch(self, path: str, change: dict[str, Any]) -> None:
        patch = merge_patch(change)
        await self._transport.request(
            Question(method="PATCH", path=path, body=patch.body, content_type=patch.content_type)
        )

    async def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        await self._transport.request(
            Question(method=method, path=path, body=msgspec.json.encode(body), content_type="application/json")
        )
