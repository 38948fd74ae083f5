"""An extender call from its bytes to its reply: who of us answers, and what is said where nothing was decided.

Whoever leads answers all verbs but `bind` at once; for a binding its write is waited for, and a follower waits for the
leader's answer. What depends on nothing that only the leader knows is answered by whoever is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_scheduler.extender.decisions import Decisions
from aliquot_scheduler.extender.echo import Echo
from aliquot_scheduler.extender.forwarding import Forwarder
from aliquot_scheduler.extender.metrics import CallMetrics
from aliquot_scheduler.extender.verbs import Answer, LeaderUnheardError, Outcome, Verb, answer, known_anyway, refused
from aliquot_scheduler.extender.wire import MalformedCallError
from aliquot_scheduler.web.calls import Call, Offered, Replied, Reply, Replying, Stranger, refusal

log = logging.getLogger(__name__)

PREFIX = "/extender"
# 5,000 names with a pod are 0.1 MB; only whole nodes come to more than this.
LARGEST_BODY = 8 * 1024 * 1024
# Larger ones go the long way, where all of them share one room.
LARGEST_AT_ONCE = 1024 * 1024

Told = tuple[Reply, Outcome]


class ExtenderCalls:
    """Replies where we lead, and passes on where we don't; those who may not ask were turned away before."""

    def __init__(
        self,
        *,
        decisions: Decisions,
        leads: Callable[[], bool],
        forwarder: Forwarder,
        metrics: CallMetrics,
        clock: Clock,
        names: Names,
    ) -> None:
        self._decisions = decisions
        self._leads = leads
        self._forwarder = forwarder
        self._metrics = metrics
        self._clock = clock
        self._names = names
        self._echo = Echo()

    def offered(self, *, stranger: Stranger) -> Offered:
        """All of it, for the short way."""
        replies: dict[str, Replying] = {address(verb): partial(self.reply, verb) for verb in Verb}
        return Offered(replies=replies, stranger=stranger, largest=LARGEST_AT_ONCE)

    def reply(self, verb: Verb, call: Call) -> Replied:
        """At once where that can be; nothing is raised."""
        begun = self._clock.monotonic()
        try:
            given: Answer | Coroutine[Any, Any, Answer] | None = known_anyway(verb, call.body, names=self._names)
            if given is None and not self._leads():
                return self._in_time(verb, call, self._passed_on(verb, call), begun=begun)
            given = given or answer(verb, call.body, decisions=self._decisions, echo=self._echo)
        except Exception as error:  # noqa: BLE001 - it is logged there, a pod waits, and the centre goes on
            return self._noted(verb, _failed(verb, call, error), begun=begun)
        if isinstance(given, Answer):
            return self._noted(verb, _told(given), begun=begun)
        return self._in_time(verb, call, _later(given), begun=begun)

    async def _in_time(self, verb: Verb, call: Call, telling: Coroutine[Any, Any, Told], *, begun: float) -> Reply:
        try:
            told = await telling
        except Exception as error:  # noqa: BLE001 - as above
            told = _failed(verb, call, error)
        return self._noted(verb, told, begun=begun)

    async def _passed_on(self, verb: Verb, call: Call) -> Told:
        """The leader's reply, or our own where we have become the leader meanwhile."""
        if call.hop:
            # One of us has the older Lease; whoever asks again finds us agreed.
            what = f"{call.hop[:80]} asked this replica, which does not lead"
            raise LeaderUnheardError(what, where=call.path)
        if (passed := await self._forwarder.forward(call.path, call.body)) is None:
            given = answer(verb, call.body, decisions=self._decisions, echo=self._echo)
            return _told(given if isinstance(given, Answer) else await given)
        reply = Reply(body=passed.body, status=HTTPStatus(passed.status), content_type=passed.content_type)
        return reply, Outcome.FORWARDED

    def _noted(self, verb: Verb, told: Told, *, begun: float) -> Reply:
        reply, outcome = told
        self._metrics.observe(verb, outcome, self._clock.monotonic() - begun)
        return reply


def address(verb: Verb) -> str:
    """Where a verb is asked."""
    return f"{PREFIX}/{verb}"


def _told(given: Answer) -> Told:
    return Reply(body=given.body), given.outcome


async def _later(given: Coroutine[Any, Any, Answer]) -> Told:
    return _told(await given)


def _failed(verb: Verb, call: Call, error: Exception) -> Told:
    if isinstance(error, MalformedCallError):
        log.warning("an extender call was turned away: %s", error, extra={"path": call.path})
        return refusal(HTTPStatus.BAD_REQUEST, str(error)), Outcome.MALFORMED
    if isinstance(error, AliquotError):
        log.warning("an extender call was refused: %s", error, extra={"verb": verb, "fault": error.fault})
    else:
        log.error("an extender call failed", exc_info=error, extra={"verb": verb})
    return _told(refused(verb, error))
