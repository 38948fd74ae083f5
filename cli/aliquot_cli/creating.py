"""Makes the pod of a run. It stands alone so that the request is on its way before anything else is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from aliquot_core.errors import UserError
from aliquot_kube.errors import AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError
from aliquot_kube.questions import Question, Transport


class RefusedError(UserError):
    """The API server, a webhook or a quota does not take the pod."""


async def create(transport: Transport, manifest: Mapping[str, Any]) -> bytes:
    """Make the pod; as the API server answers it."""
    meta = manifest["metadata"]
    question = Question(
        method="POST",
        path=f"/api/v1/namespaces/{quote(meta['namespace'], safe='')}/pods",
        body=msgspec.json.encode(manifest),
        content_type="application/json",
    )
    try:
        return (await transport.request(question)).body
    except (InvalidError, ForbiddenError, AlreadyExistsError, NotFoundError) as error:
        raise RefusedError(error.what, where=f"{meta['namespace']}/{meta['name']}") from None
