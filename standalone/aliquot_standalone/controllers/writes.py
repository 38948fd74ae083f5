"""What controllers write: whole manifests, statuses, and deletions that say what becomes of the owned."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec

from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ConflictError, NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.questions import Question, Transport
from aliquot_kube.resources import Resource, T
from aliquot_kube.wire import Decoder
from aliquot_standalone.controllers.objects import WORK_PODS, WorkPod

_JSON = "application/json"
Propagation = Literal["Background", "Foreground", "Orphan"]


class Writer:
    """Writes over one transport."""

    def __init__(self, *, transport: Transport) -> None:
        self._transport = transport
        self.client = KubeClient(transport=transport)

    async def create(self, resource: Resource[T], manifest: Mapping[str, Any]) -> T:
        """Create an object that is written whole; gives it as the API server has it."""
        path = resource.collection(manifest["metadata"].get("namespace", ""))
        question = Question(method="POST", path=path, body=msgspec.json.encode(manifest), content_type=_JSON)
        return Decoder(resource.type).object((await self._transport.request(question)).body)

    async def status(self, resource: Resource[T], thing: T, status: Mapping[str, Any]) -> T:
        """Replace what is named of a status, if nobody wrote the object since it was read."""
        meta = thing.metadata
        patch = merge_patch({"metadata": {"resourceVersion": meta.resource_version}, "status": status})
        return await self.client.patch(
            resource, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status"
        )

    async def release(self, pod: WorkPod, *, finalizer: str) -> None:
        """Take a finalizer away from a pod."""
        meta = pod.metadata
        left = [one for one in meta.finalizers if one != finalizer]
        # The version guards a finalizer that somebody else adds meanwhile.
        patch = merge_patch({"metadata": {"resourceVersion": meta.resource_version, "finalizers": left or None}})
        with suppress(NotFoundError):
            await self.client.patch(WORK_PODS, name=meta.name, namespace=meta.namespace, patch=patch)

    async def delete(self, resource: Resource[T], thing: T, *, propagation: Propagation | None = None) -> None:
        """Delete this very object, if it is still there."""
        meta = thing.metadata
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}}
        body = msgspec.json.encode(options | ({"propagationPolicy": propagation} if propagation else {}))
        path = resource.path(name=meta.name, namespace=meta.namespace)
        with suppress(NotFoundError, ConflictError):
            await self._transport.request(Question(method="DELETE", path=path, body=body, content_type=_JSON))
