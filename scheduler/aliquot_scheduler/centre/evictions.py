"""Asks one pod to go, and says what came of it: the one place that knows what each answer to an eviction means.

The eviction subresource is used, of the very pod (its UID), with the pod's own grace, or the longest that the operator
gives anybody. Whoever goes is told why. Only for an owner who has waited long for what budgets keep, a pod is deleted:
the very pod too, and with the same grace.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from aliquot_core.objects import Pod
from aliquot_kube.errors import (
    ApiError,
    ConflictError,
    DisruptionBlockedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from aliquot_kube.leadership import NotLeadingError
from aliquot_kube.resources import PODS
from aliquot_scheduler.centre.means import NOT_WRITTEN, Means
from aliquot_scheduler.queues.telling.notices import Notice

log = logging.getLogger(__name__)


class Answer(StrEnum):
    """What came of it."""

    TAKEN = "taken"
    # A disruption budget keeps the pod, or whoever else has a say in the cluster.
    KEPT = "kept"
    GONE = "gone"
    # It may have been done or not: to ask once more does no harm to a pod that is on the way out.
    FAILED = "failed"
    # No answer at all: nobody else can be asked now either.
    CUT_OFF = "cut off"


class Evictions:
    """The way to ask."""

    def __init__(self, *, means: Means) -> None:
        self._client = means.client
        self._events = means.events

    async def ask(self, pod: Pod, *, why: Notice, grace: int | None = None, against_budgets: bool = False) -> Answer:
        """Ask this very pod to go within `grace` seconds, or as it says itself.

        `against_budgets` by the one way that heeds none: it is deleted.
        """
        meta = pod.metadata
        try:
            if against_budgets:
                await self._client.delete(
                    PODS, namespace=meta.namespace, name=meta.name, uid=meta.uid, grace_seconds=grace
                )
            else:
                await self._client.evict(namespace=meta.namespace, name=meta.name, uid=meta.uid, grace_seconds=grace)
        except NOT_WRITTEN as error:
            answer = _meaning(error)
            level = logging.INFO if isinstance(error, _USUAL) else logging.WARNING
            log.log(level, "not evicted", extra={"pod": pod.key, "answer": answer.value, "error": str(error)})
            return answer
        self._events.tell(pod, why, action="Evicting")
        log.info("evicted", extra={"pod": pod.key, "reason": why.reason, "why": why.message})
        return Answer.TAKEN


_USUAL = (DisruptionBlockedError, NotFoundError, ConflictError)


def _meaning(error: ApiError | NotLeadingError) -> Answer:
    """What is said of one pod alone must not keep others from being asked: a webhook may deny a single one for good."""
    match error:
        case NotFoundError() | ConflictError():
            return Answer.GONE
        case DisruptionBlockedError() | ForbiddenError() | InvalidError():
            return Answer.KEPT
        case UnreachableError() | NotLeadingError():
            return Answer.CUT_OFF
        case _:
            return Answer.FAILED
