"""Keeps pods with slices from a kube-scheduler that evicts by priority and can't be told to ask before.

The API server asks what it writes on its victims: first that they are to go, then their deletion. It is answered that
there is no such pod. That kube-scheduler takes for one that is gone already, and looks again when something changes or
after five minutes; of any other refusal it tries again at once, 30 times a second for each pod that waits (measured,
1.36.3), and of 50 writes a second that it has nobody else would be bound.

For pods that run the cluster whoever it chooses goes. Which of them wait the leader knows by its watch, so whoever
follows passes the question on, once. Where no leader answers in time the replica looks itself (`onlooker.py`). Where
the API server does not say either the victim goes: so it does while no replica is there to ask, and what brings the
leader back may need it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Literal, NamedTuple

import msgspec

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
PATIENCE = 2.5
# Of that the leader's: it gives its own watch half a second.
LEADERS_PART: Final = 0.5
# Questions under way to the leader at once. Anybody may ask, and each holds one of the connections by which
# kube-scheduler's calls go there too; who finds no place looks for himself, and all who look share their looks.
MOST_PASSED_ON: Final = 8
_DEFECT: Final = "a defect of ours, which the log shows"


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
        one_seen: Callable[[Pod], Awaitable[Pod | None]],
        forward: Callable[[str, bytes], Awaitable[LeadersAnswer | None]],
        patience: float = PATIENCE,
    ) -> None:
        """`one_for` tells for whom of those who run the cluster it may go, where this replica leads.

        `one_seen` tells the same by what the API server says now; `forward` asks the leader.
        """
        self._patience = patience
        self._names = names
        self._leads = leads
        self._one_for = one_for
        self._one_seen = one_seen
        self._forward = forward
        # Why the leader was not heard last; empty where it was.
        self._unheard = ""
        self._under_way = 0

    async def answer(self, body: bytes, *, hop: str = "") -> Spared:
        """To the API server, or to the replica `hop` that was asked by it."""
        review = without_nulls(_review_of, body)
        if goes_by_priority(review.victim, names=self._names):
            return Spared(encode_allowed(review.uid))
        try:
            async with asyncio.timeout(self._patience):
                said = await self._by_the_leader(review, body, hop=hop)
                return Spared(said or _said(review, waiting=await self._one_seen(review.victim)))
        except TimeoutError:
            why = f"no answer within {self._patience:g} s"
        except AliquotError as error:
            why = str(error)
        except Exception:  # the API server lets the victim go whatever we answer it; so at least it is counted
            log.exception("an eviction by priority could not be judged", extra=_about(review))
            why = _DEFECT
        log.warning("evicted by priority unjudged: %s", why, extra=_about(review))
        return Spared(encode_allowed(review.uid), judged=False)

    async def _by_the_leader(self, review: _Review, body: bytes, *, hop: str) -> bytes | None:
        """What it says, here or elsewhere; None where that is not heard in time."""
        if not hop and not self._leads() and self._under_way >= MOST_PASSED_ON:
            # Not logged as unheard: strangers would have that change with each of their questions.
            return None
        seconds = self._patience * LEADERS_PART
        try:
            async with asyncio.timeout(seconds):
                passed = None if self._leads() else await self._passed_on(body, hop=hop)
                said = passed or _said(review, waiting=await self._one_for(review.victim))
                self._unheard = ""
                return said
        except TimeoutError:
            why = f"no answer within {seconds:g} s"
        except AliquotError as error:
            why = str(error)
        except Exception:  # what it knows by its watch can't be told for this one: it is looked at as without a leader
            log.exception("an eviction by priority could not be judged by what is watched", extra=_about(review))
            why = _DEFECT
        # Anybody may ask, as often as they like; nor does it change while nobody leads.
        if why != self._unheard:
            log.info("evictions are judged without the leader: %s", why, extra=_about(review))
            self._unheard = why
        return None

    async def _passed_on(self, body: bytes, *, hop: str) -> bytes | None:
        """The leader's answer; None where we have become the leader meanwhile."""
        if hop:
            raise LeaderUnheardError(f"{hop[:80]} asked this replica, which does not lead", where=SPARE)
        self._under_way += 1
        try:
            passed = await self._forward(SPARE, body)
        finally:
            self._under_way -= 1
        if passed is None:
            return None
        if passed.status != HTTPStatus.OK:
            raise LeaderUnheardError(f"the leader answered with {passed.status}", where=SPARE)
        try:
            is_allowed(passed.body)
        except ValueError as error:
            raise LeaderUnheardError(f"the leader's answer can't be read: {error}", where=SPARE) from error
        return passed.body


def _review_of(body: bytes) -> _Review:
    review = decoded(_reviews, body, what="body").request
    victim = decoded(_pods, review.old_object, what="oldObject")
    return _Review(uid=review.uid, user=review.user_info.username, victim=victim)


def _said(review: _Review, *, waiting: Pod | None) -> bytes:
    """Where that one waits for it, or nobody."""
    if waiting is None:
        log.info("kept from eviction by priority", extra=_about(review))
        return encode_not_there(review.uid, why=NOBODY_GOES)
    log.info("goes for a pod that runs the cluster", extra={**_about(review), "for": in_log(waiting.key)})
    return encode_allowed(review.uid)


def _about(review: _Review) -> dict[str, str]:
    about = {"pod": review.victim.key, "node": review.victim.spec.node_name, "user": review.user}
    return {what: in_log(name) for what, name in about.items()}
