"""The webhook's addresses, for the centre's HTTP server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from aliquot_core.clock import Clock
from aliquot_kube.errors import ApiError
from aliquot_scheduler.admission.admission import Admission
from aliquot_scheduler.admission.metrics import AdmissionMetrics, Endpoint, Outcome
from aliquot_scheduler.admission.review import MalformedReviewError, encode_refused, is_allowed, uid_of
from aliquot_scheduler.admission.sparing import Sparing
from aliquot_scheduler.web.bodies import (
    BodyCutError,
    BodyRoom,
    BodyTooLargeError,
    NoRoomError,
    json_answer,
    problem,
    read_body,
)
from aliquot_scheduler.web.heads import HOP

log = logging.getLogger(__name__)

MUTATE = f"/{Endpoint.MUTATE}"
VALIDATE = f"/{Endpoint.VALIDATE}"
VALIDATE_QUEUE = f"/{Endpoint.VALIDATE_QUEUE}"
# The API server takes objects of 1.5 MiB (etcd's limit); a change brings two of them.
LARGEST_BODY = 3 * 1024 * 1024
# The configurations that call us say after how long the API server gives up.
BODY_PATIENCE = 5.0

# From a body, and from which replica it comes if not from the API server.
_Answer = Callable[[bytes, str], Awaitable[tuple[bytes, Outcome]]]


def admission_routes(
    admission: Admission,
    *,
    sparing: Sparing,
    metrics: AdmissionMetrics,
    clock: Clock,
    is_replica: Callable[[web.Request], bool],
    room: BodyRoom | None = None,
) -> list[web.RouteDef]:
    """What an application adds to serve the webhook; all bodies that are coming share `room`.

    `is_replica` tells whether a replica of the centre asks, by its certificate: others show none.
    """
    shared = room or BodyRoom()

    def hop_of(request: web.Request) -> str:
        # Anybody reaches the port. That the leader was asked already is believed of who can have asked it alone.
        hop = request.headers.get(HOP, "")
        return hop if hop and is_replica(request) else ""

    async def mutating(body: bytes, _: str) -> tuple[bytes, Outcome]:
        return _said(admission.mutating(body))

    async def validating(body: bytes, _: str) -> tuple[bytes, Outcome]:
        return _said(await admission.validating(body))

    async def validating_queue(body: bytes, _: str) -> tuple[bytes, Outcome]:
        return _said(await admission.validating_queue(body))

    async def spare(body: bytes, hop: str) -> tuple[bytes, Outcome]:
        spared = await sparing.answer(body, hop=hop)
        return _said(spared.answer) if spared.judged else (spared.answer, Outcome.UNJUDGED)

    def served(endpoint: Endpoint, answer: _Answer) -> web.RouteDef:
        async def handle(request: web.Request) -> web.Response:
            begun, outcome = clock.monotonic(), Outcome.FAILED
            try:
                response, outcome = await _answered(request, answer, hop=hop_of(request), room=shared)
                return response
            finally:
                metrics.observe(endpoint, outcome, clock.monotonic() - begun)

        return web.post(f"/{endpoint}", handle)

    return [
        served(Endpoint.MUTATE, mutating),
        served(Endpoint.VALIDATE, validating),
        served(Endpoint.VALIDATE_QUEUE, validating_queue),
        served(Endpoint.SPARE, spare),
    ]


async def _answered(request: web.Request, answer: _Answer, *, hop: str, room: BodyRoom) -> tuple[web.Response, Outcome]:
    try:
        with room.taken() as grown:
            body = await read_body(request, largest=LARGEST_BODY, patience=BODY_PATIENCE, grown=grown)
            said, outcome = await answer(body, hop)
        return json_answer(said), outcome
    except BodyTooLargeError as error:
        return _too_large(error.beginning)
    except NoRoomError as error:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error)), Outcome.CROWDED
    except BodyCutError as error:
        return problem(HTTPStatus.REQUEST_TIMEOUT, str(error)), Outcome.MALFORMED
    except MalformedReviewError as error:
        log.warning("%s", error, extra={"peer": request.remote, "path": request.path})
        return problem(HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED
    except ApiError as error:
        log.warning("%s", error, extra={"path": request.path})
        why = f"the tree of queues can't be read: {error}"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, why), Outcome.FAILED


def _said(answer: bytes) -> tuple[bytes, Outcome]:
    return answer, Outcome.ALLOWED if is_allowed(answer) else Outcome.REFUSED


def _too_large(beginning: bytes) -> tuple[web.Response, Outcome]:
    """Authors read a review's sentence, and of any other answer its number only."""
    why = f"more than {LARGEST_BODY} bytes"
    if uid := uid_of(beginning):
        said = f"what is to be judged has {why}; make it smaller: fewer containers, less in their environment"
        return json_answer(encode_refused(uid, problems=[said])), Outcome.REFUSED
    return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why), Outcome.MALFORMED
