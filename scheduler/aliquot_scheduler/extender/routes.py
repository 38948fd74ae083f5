"""The extender's addresses, for the centre's HTTP server: who asks, how much, and who of us answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_scheduler.extender.decisions import Decisions
from aliquot_scheduler.extender.forwarding import HOP, Forwarder
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.verbs import Answer, LeaderUnheardError, Outcome, Verb, answer, refused
from aliquot_scheduler.extender.wire import MalformedCallError
from aliquot_scheduler.web.bodies import BodyCutError, BodyTooLargeError, json_answer, problem, read_body

log = logging.getLogger(__name__)

PREFIX = "/extender"
# 5,000 names with a pod are 0.1 MB; only whole nodes come to more than this.
LARGEST_BODY = 8 * 1024 * 1024
# A body that takes longer comes after kube-scheduler has given up.
BODY_PATIENCE = 5.0

Told = tuple[web.Response, Outcome]


class ExtenderRoutes:
    """Answers where we lead, and passes on where we don't."""

    def __init__(
        self,
        *,
        decisions: Decisions,
        leads: Callable[[], bool],
        forwarder: Forwarder,
        stranger: Callable[[web.Request], str],
        metrics: CallMetrics,
        clock: Clock,
    ) -> None:
        """`stranger` says why whoever asks may not; empty for those who may."""
        self._decisions = decisions
        self._leads = leads
        self._forwarder = forwarder
        self._stranger = stranger
        self._metrics = metrics
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """What an application adds to serve them."""
        return [web.post(f"{PREFIX}/{verb}", self._handler(verb)) for verb in Verb]

    def _handler(self, verb: Verb) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            begun = self._clock.monotonic()
            response, outcome = await self._admit(verb, request)
            self._metrics.observe(verb, outcome, self._clock.monotonic() - begun)
            return response

        return handle

    async def _admit(self, verb: Verb, request: web.Request) -> Told:
        if why := self._stranger(request):
            return _turned_away(request, HTTPStatus.FORBIDDEN, why), Outcome.STRANGER
        try:
            body = await read_body(request, largest=LARGEST_BODY, patience=BODY_PATIENCE)
        except BodyTooLargeError:
            why = f"more than {LARGEST_BODY} bytes; does the extender's entry say nodeCacheCapable: true?"
            return _turned_away(request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why), Outcome.TOO_LARGE
        except BodyCutError as error:
            return _turned_away(request, HTTPStatus.REQUEST_TIMEOUT, str(error)), Outcome.CUT
        return await self._decided(verb, request, body)

    async def _decided(self, verb: Verb, request: web.Request, body: bytes) -> Told:
        try:
            return await self._answer(verb, request, body)
        except MalformedCallError as error:
            return _turned_away(request, HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED
        except AliquotError as error:
            log.warning("an extender call was refused: %s", error, extra={"verb": verb, "fault": error.fault})
            return _told(refused(verb, error))
        except Exception as error:  # a defect of ours: the pod waits, and the centre goes on
            log.exception("an extender call failed", extra={"verb": verb})
            return _told(refused(verb, error))

    async def _answer(self, verb: Verb, request: web.Request, body: bytes) -> Told:
        if not self._leads():
            if sender := request.headers.get(HOP):
                # One of us has the older Lease; whoever asks again finds us agreed.
                raise LeaderUnheardError(f"{sender[:80]} asked this replica, which does not lead", where=request.path)
            if (passed := await self._forwarder.forward(request.path, body)) is not None:
                response = web.Response(body=passed.body, status=passed.status, content_type=passed.content_type)
                return response, Outcome.FORWARDED
        return _told(await answer(verb, body, decisions=self._decisions))


def _told(given: Answer) -> Told:
    return json_answer(given.body), given.outcome


def _turned_away(request: web.Request, status: HTTPStatus, why: str) -> web.Response:
    log.warning("an extender call was turned away: %s", why, extra={"peer": request.remote, "path": request.path})
    return problem(status, why)
