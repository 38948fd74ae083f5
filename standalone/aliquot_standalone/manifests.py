"""Objects as users write them, on their way to the API server: our structs hold only what we read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aliquot_kube.questions import Question, Transport

MANAGER = "aliquot-up"
_APPLY = "application/apply-patch+yaml"
# By kind: what its objects are called in paths.
_PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "Lease": "leases",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Namespace": "namespaces",
    "Pod": "pods",
    "Queue": "queues",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
Json = Mapping[str, Any]


class Manifests:
    """Writes whole objects."""

    def __init__(self, *, transport: Transport) -> None:
        self._transport = transport

    async def apply(self, manifest: Json) -> None:
        """Have it be so, whatever is there."""
        path = f"{_collection(manifest)}/{manifest['metadata']['name']}"
        query = {"fieldManager": MANAGER, "force": "true"}
        await self._ask("PATCH", path, manifest, content_type=_APPLY, query=query)

    async def create(self, manifest: Json) -> bytes:
        """Create it; what the server made of it."""
        return await self._ask("POST", _collection(manifest), manifest)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        content = msgspec.json.encode(body)
        question = Question(method=method, path=path, query=dict(query or {}), body=content, content_type=content_type)
        return (await self._transport.request(question)).body


def _collection(manifest: Json) -> str:
    version, space = manifest["apiVersion"], manifest["metadata"].get("namespace", "")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}{f'/namespaces/{space}' if space else ''}/{_PLURALS[manifest['kind']]}"
