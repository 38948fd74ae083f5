"""The extender's addresses on the long way, for the centre's HTTP server: who may ask, and how much."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from aliquot_core.clock import Clock
from aliquot_scheduler.extender.calling import LARGEST_BODY, ExtenderCalls, address
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.verbs import Outcome, Verb
from aliquot_scheduler.web.bodies import (
    BodyCutError,
    BodyRoom,
    BodyTooLargeError,
    Grown,
    NoRoomError,
    problem,
    read_body,
)
from aliquot_scheduler.web.calls import Call, Reply, Stranger
from aliquot_scheduler.web.heads import HOP

log = logging.getLogger(__name__)

# A body that takes longer comes after kube-scheduler has given up.
BODY_PATIENCE = 5.0

_TurnedAway = tuple[HTTPStatus, Outcome, str]


def extender_routes(
    calls: ExtenderCalls, *, stranger: Stranger, metrics: CallMetrics, clock: Clock, room: BodyRoom | None = None
) -> list[web.RouteDef]:
    """What an application adds to serve them; `stranger` says why whoever asks may not.

    All bodies that are coming share `room`.
    """
    shared = room or BodyRoom()

    def handler(verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            begun = clock.monotonic()
            with shared.taken() as grown:
                body = await _admitted(request, stranger=stranger, grown=grown)
                if isinstance(body, bytes):
                    replied = calls.reply(verb, Call(path=request.path, body=body, hop=request.headers.get(HOP, "")))
                    reply = replied if isinstance(replied, Reply) else await replied
                    return web.Response(body=reply.body, status=reply.status, content_type=reply.content_type)
            status, outcome, why = body
            log.warning("an extender call was turned away: %s", why, extra=_whose(request))
            metrics.observe(verb, outcome, clock.monotonic() - begun)
            return problem(status, why)

        return handle

    return [web.post(address(verb), handler(verb)) for verb in Verb]


async def _admitted(request: web.Request, *, stranger: Stranger, grown: Grown) -> bytes | _TurnedAway:
    """The body, or why there is none to be read."""
    if why := stranger(request.transport):
        return HTTPStatus.FORBIDDEN, Outcome.STRANGER, why
    try:
        return await read_body(request, largest=LARGEST_BODY, patience=BODY_PATIENCE, grown=grown)
    except BodyTooLargeError:
        why = f"more than {LARGEST_BODY} bytes; does the extender's entry say nodeCacheCapable: true?"
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, Outcome.TOO_LARGE, why
    except NoRoomError as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, Outcome.CROWDED, str(error)
    except BodyCutError as error:
        return HTTPStatus.REQUEST_TIMEOUT, Outcome.CUT, str(error)


def _whose(request: web.Request) -> dict[str, str | None]:
    return {"peer": request.remote, "path": request.path}
