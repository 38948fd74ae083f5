"""The webhook's two addresses, for the centre's HTTP server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.review import MalformedReviewError
from aliquot_scheduler.web.bodies import BodyCutError, BodyTooLargeError, json_answer, problem, read_body

log = logging.getLogger(__name__)

MUTATE = "/mutate"
VALIDATE = "/validate"
# The API server takes objects of 1.5 MiB (etcd's limit); a change brings two of them.
LARGEST_BODY = 3 * 1024 * 1024
# The configurations that call us say after how long the API server gives up.
BODY_PATIENCE = 5.0


def admission_routes(admission: Admission) -> list[web.RouteDef]:
    """What an application adds to serve the webhook."""
    return [
        web.post(MUTATE, _handler(admission.mutating)),
        web.post(VALIDATE, _handler(admission.validating)),
    ]


def _handler(answer: Callable[[bytes], bytes]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            return json_answer(answer(await read_body(request, largest=LARGEST_BODY, patience=BODY_PATIENCE)))
        except BodyTooLargeError:
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LARGEST_BODY} bytes")
        except BodyCutError as error:
            return problem(HTTPStatus.REQUEST_TIMEOUT, str(error))
        except MalformedReviewError as error:
            log.warning("%s", error, extra={"peer": request.remote, "path": request.path})
            return problem(HTTPStatus.BAD_REQUEST, str(error))

    return handle
