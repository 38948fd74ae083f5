"""Keeps pods with slices from a kube-scheduler that evicts by priority and can't be told to ask before.

The API server asks what it writes on its victims: first that they are to go, then their deletion. It is answered that
there is no such pod. That kube-scheduler takes for one that is gone already, and looks again when something changes or
after five minutes; of any other refusal it tries again at once, 30 times a second for each pod that waits (measured,
1.36.3), and of 50 writes a second that it has nobody else would be bound.

For pods that run the cluster whoever it chooses goes. Which of them wait the leader knows alone, so whoever follows
passes the question on, once. While a leader follows another nobody knows: that is waited for, as long as the API server
waits. Where nobody answers by then the victim goes: so it does while no replica is there to ask, and what brings the
leader back may need it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Literal, NamedTuple

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.errors import AliquotError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_scheduler.admission.metrics import Endpoint
from aliquot_scheduler.admission.review import (
    Asked,
    Envelope,
    decoded,
    encode_allowed,
    encode_not_there,
    in_log,
    is_allowed,
    without_nulls,
)
from aliquot_scheduler.extender.forwarding import LeadersAnswer
from aliquot_scheduler.extender.preempting import goes_by_priority
from aliquot_scheduler.extender.verbs import LeaderUnheardError

log = logging.getLogger(__name__)

NOBODY_GOES = "pods with slices go for others by their queues only, whatever the PriorityClass"
# Where it is asked, here and at the leader.
SPARE = f"/{Endpoint.SPARE}"
# Less than the API server's (timeoutSeconds in the configuration), so that it is told why.
PATIENCE = 2.0
# A leader that follows another knows after tenths of a second.
_AGAIN = 0.1


class _Request(Asked, frozen=True, kw_only=True):
    operation: Literal["UPDATE", "DELETE"]


class _Review(NamedTuple):
    uid: str
    user: str
    victim: Pod


_reviews = msgspec.json.Decoder(Envelope[_Request])
_pods = msgspec.json.Decoder(Pod)


class Spared(NamedTuple):
    """What is answered, and whether anybody could judge it."""

    answer: bytes
    judged: bool = True


class Sparing:
    """Says whether a kube-scheduler may send a pod away; which of its writes say so the configuration knows."""

    def __init__(
        self,
        *,
        names: Names,
        leads: Callable[[], bool],
        one_for: Callable[[Pod], Awaitable[Pod | None]],
        forward: Callable[[str, bytes], Awaitable[LeadersAnswer | None]],
        clock: Clock,
        patience: float = PATIENCE,
    ) -> None:
        """`one_for` tells for whom of those who run the cluster it may go; `forward` asks the leader."""
        self._clock = clock
        self._patience = patience
        self._names = names
        self._leads = leads
        self._one_for = one_for
        self._forward = forward

    async def answer(self, body: bytes, *, hop: str = "") -> Spared:
        """To the API server, or to the replica `hop` that was asked by it."""
        review = without_nulls(_review_of, body)
        if goes_by_priority(review.victim, names=self._names):
            return Spared(encode_allowed(review.uid))
        why = f"no answer within {self._patience:g} s"
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    try:
                        passed = None if self._leads() else await self._passed_on(body, hop=hop)
                        return Spared(passed or await self._judged(review))
                    except AliquotError as error:
                        why = str(error)
                        if hop:
                            break
                    await self._clock.sleep(_AGAIN)
        except TimeoutError:
            pass
        log.warning("evicted by priority unjudged: %s", why, extra=_about(review))
        return Spared(encode_allowed(review.uid), judged=False)

    async def _passed_on(self, body: bytes, *, hop: str) -> bytes | None:
        """The leader's answer; None where we have become the leader meanwhile."""
        if hop:
            raise LeaderUnheardError(f"{hop[:80]} asked this replica, which does not lead", where=SPARE)
        if (passed := await self._forward(SPARE, body)) is None:
            return None
        if passed.status != HTTPStatus.OK:
            raise LeaderUnheardError(f"the leader answered with {passed.status}", where=SPARE)
        try:
            is_allowed(passed.body)
        except ValueError as error:
            raise LeaderUnheardError(f"the leader's answer can't be read: {error}", where=SPARE) from error
        return passed.body

    async def _judged(self, review: _Review) -> bytes:
        waiting = await self._one_for(review.victim)
        if waiting is None:
            log.info("kept from eviction by priority", extra=_about(review))
            return encode_not_there(review.uid, why=NOBODY_GOES)
        log.info("goes for a pod that runs the cluster", extra={**_about(review), "for": in_log(waiting.key)})
        return encode_allowed(review.uid)


def _review_of(body: bytes) -> _Review:
    review = decoded(_reviews, body, what="body").request
    victim = decoded(_pods, review.old_object, what="oldObject")
    return _Review(uid=review.uid, user=review.user_info.username, victim=victim)


def _about(review: _Review) -> dict[str, str]:
    about = {"pod": review.victim.key, "node": review.victim.spec.node_name, "user": review.user}
    return {what: in_log(name) for what, name in about.items()}
