"""The few things Aliquot does to single objects.

There is no `update`: our structs hold only the fields that we read, so putting one back would erase all others. And no
verb tries again by itself: whether a write that may or may not have happened can be repeated, only the caller knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from aliquot_kube.dated import dated
from aliquot_kube.errors import ConflictError, InvalidError, TooManyError
from aliquot_kube.patches import Patch
from aliquot_kube.questions import Question, Response, Timeouts, Transport
from aliquot_kube.resources import PODS, Resource, T
from aliquot_kube.wire import Decoder

_JSON = "application/json"
_PAGE = 500


class KubeClient:
    """Typed verbs over a transport."""

    def __init__(self, *, transport: Transport, timeouts: Timeouts | None = None) -> None:
        self.transport = transport
        self._timeouts = timeouts or Timeouts()

    async def get(self, resource: Resource[T], *, name: str, namespace: str = "") -> T:
        """Read one object."""
        return self._object(resource, await self._ask("GET", resource.path(name=name, namespace=namespace)))

    async def get_dated(self, resource: Resource[T], *, name: str, namespace: str = "") -> tuple[T, float | None]:
        """Read one object, and what time it is by the server's clock; None where it does not say."""
        answer = await self._answer("GET", resource.path(name=name, namespace=namespace))
        return self._object(resource, answer.body), dated(answer)

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        most: int | None = None,
    ) -> list[T]:
        """Read all objects, or those that are chosen; for a copy that lives there is `Mirror`.

        More than `most` are a `TooManyError`, and only so many were read.
        """
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        page_limit = _PAGE if most is None else min(_PAGE, most)
        query = {name: value for name, value in selectors.items() if value} | {"limit": str(page_limit)}
        decoder = Decoder(resource.type)
        items: list[T] = []
        while True:
            page = decoder.page(await self._ask("GET", resource.collection(namespace), query=query))
            items += page.items
            if not page.metadata.continue_:
                return items
            if most is not None and len(items) >= most:
                raise TooManyError(f"more than {most} {resource.plural}", where=resource.collection(namespace))
            query["continue"] = page.metadata.continue_

    async def create(self, resource: Resource[T], thing: T) -> T:
        """Make an object; `AlreadyExistsError` where the name is taken."""
        path = resource.collection(thing.metadata.namespace)
        return self._object(resource, await self._ask("POST", path, body=manifest(resource, thing)))

    async def patch(
        self, resource: Resource[T], *, name: str, namespace: str = "", patch: Patch, subresource: str = ""
    ) -> T:
        """Change an object or a part of it; an expectation that does not hold is a `ConflictError`."""
        path = resource.path(name=name, namespace=namespace, subresource=subresource)
        try:
            answer = await self._ask("PATCH", path, body=patch.body, content_type=patch.content_type)
        except InvalidError as error:
            if patch.tests and _is_unexplained(error):
                raise ConflictError(error.what, where=error.where, status=error.status) from error
            raise
        return self._object(resource, answer)

    async def delete(
        self,
        resource: Resource[T],
        *,
        name: str,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object; with `uid` only that very one (`ConflictError` where another bears the name now)."""
        path = resource.path(name=name, namespace=namespace)
        await self._ask("DELETE", path, body=_delete_options(uid=uid, grace_seconds=grace_seconds))

    async def bind(
        self, *, namespace: str, name: str, node: str, uid: str = "", annotations: Mapping[str, str] | None = None
    ) -> None:
        """Bind a pod and annotate it in the same write (run on a real API server).

        `uid` guards against a pod made again under the name. The API server does not check that the node exists.
        """
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})}
            | ({"uid": uid} if uid else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(name=name, namespace=namespace, subresource="binding")
        await self._ask("POST", path, body=msgspec.json.encode(binding))

    async def evict(self, *, namespace: str, name: str, uid: str = "", grace_seconds: int | None = None) -> None:
        """Evict a pod as the rules allow; `DisruptionBlockedError` where a PodDisruptionBudget forbids it for now."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": msgspec.Raw(_delete_options(uid=uid, grace_seconds=grace_seconds)),
        }
        path = PODS.path(name=name, namespace=namespace, subresource="eviction")
        await self._ask("POST", path, body=msgspec.json.encode(eviction))

    async def _ask(self, method: str, path: str, **more: Any) -> bytes:
        return (await self._answer(method, path, **more)).body

    async def _answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
    ) -> Response:
        question = Question(
            method=method,
            path=path,
            query=dict(query or {}),
            body=body,
            content_type=content_type if body is not None else "",
            timeouts=self._timeouts,
        )
        return await self.transport.request(question)

    @staticmethod
    def _object(resource: Resource[T], body: bytes) -> T:
        return Decoder(resource.type).object(body)


def manifest(resource: Resource[T], thing: T) -> bytes:
    """Spell an object as the API wants it, with its kind; what was left out stays out."""
    kind: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind}
    return msgspec.json.encode(kind | msgspec.to_builtins(thing))


def _delete_options(*, uid: str, grace_seconds: int | None) -> bytes:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return msgspec.json.encode(options)


def _is_unexplained(error: InvalidError) -> bool:
    """Whether a patch was refused before the API server came to look at the object that it makes.

    kube-apiserver 1.36 answers a `test` that does not hold with a 422 without details, the same as a path that leads
    nowhere (run). Where somebody else may have written first both mean: read again. An object that breaks the rules is
    named in the message instead.
    """
    return error.status == HTTPStatus.UNPROCESSABLE_ENTITY and " is invalid: " not in error.what
