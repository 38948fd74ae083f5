"""The webhook's two addresses, for the centre's HTTP server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.review import MalformedReviewError

log = logging.getLogger(__name__)

MUTATE = "/mutate"
VALIDATE = "/validate"
# The API server takes objects of 1.5 MiB (etcd's limit); a change brings two of them.
LARGEST_BODY = 3 * 1024 * 1024

_CHUNK = 64 * 1024


def admission_routes(admission: Admission) -> list[web.RouteDef]:
    """What an application adds to serve the webhook."""
    return [
        web.post(MUTATE, _handler(admission.mutating)),
        web.post(VALIDATE, _handler(admission.validating)),
    ]


def _handler(answer: Callable[[bytes], bytes]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        body = await _read(request)
        if body is None:
            return _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LARGEST_BODY} bytes")
        try:
            return web.Response(body=answer(body), content_type="application/json")
        except MalformedReviewError as error:
            log.warning("%s", error, extra={"peer": request.remote, "path": request.path})
            return _problem(HTTPStatus.BAD_REQUEST, str(error))

    return handle


async def _read(request: web.Request) -> bytes | None:
    """The body, or None if it is too large; the application's own limit is meant for its other addresses."""
    body = bytearray()
    async for chunk in request.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > LARGEST_BODY:
            return None
    return bytes(body)


def _problem(status: HTTPStatus, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
