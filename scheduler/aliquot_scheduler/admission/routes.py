"""The webhook's addresses, for the centre's HTTP server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from aliquot_kube.errors import ApiError
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.review import MalformedReviewError
from aliquot_scheduler.web.bodies import BodyCutError, BodyTooLargeError, json_answer, problem, read_body

log = logging.getLogger(__name__)

MUTATE = "/mutate"
VALIDATE = "/validate"
VALIDATE_QUEUE = "/validate-queue"
# The API server takes objects of 1.5 MiB (etcd's limit); a change brings two of them.
LARGEST_BODY = 3 * 1024 * 1024
# The configurations that call us say after how long the API server gives up.
BODY_PATIENCE = 5.0


def admission_routes(admission: Admission) -> list[web.RouteDef]:
    """What an application adds to serve the webhook."""

    async def mutating(body: bytes) -> bytes:
        return admission.mutating(body)

    return [
        web.post(MUTATE, _handler(mutating)),
        web.post(VALIDATE, _handler(admission.validating)),
        web.post(VALIDATE_QUEUE, _handler(admission.validating_queue)),
    ]


def _handler(answer: Callable[[bytes], Awaitable[bytes]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = await read_body(request, largest=LARGEST_BODY, patience=BODY_PATIENCE)
            return json_answer(await answer(body))
        except BodyTooLargeError:
            return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LARGEST_BODY} bytes")
        except BodyCutError as error:
            return problem(HTTPStatus.REQUEST_TIMEOUT, str(error))
        except MalformedReviewError as error:
            log.warning("%s", error, extra={"peer": request.remote, "path": request.path})
            return problem(HTTPStatus.BAD_REQUEST, str(error))
        except ApiError as error:
            log.warning("%s", error, extra={"path": request.path})
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, f"the tree of queues can't be read: {error}")

    return handle
