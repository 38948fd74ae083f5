"""Tells people why a pod has no node: a condition of the pod, written when its words change, and an Event."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.instants import second_time
from aliquot_core.objects import ObjectReference, PodCondition
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, NotFoundError
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.patches import strategic_patch
from aliquot_kube.resources import PODS
from aliquot_standalone.scheduling.objects import PlacedPod

log = logging.getLogger(__name__)

_CONDITION = "PodScheduled"


class Teller:
    """Writes conditions and Events of pods that wait."""

    def __init__(self, *, client: KubeClient, clock: Clock, random: Random) -> None:
        self._client = client
        self._clock = clock
        self._events = EventRecorder(
            client=client,
            clock=clock,
            random=random,
            controller="aliquot-scheduling",
            instance="aliquot-up",
            ledger=EventLedger(),
        )

    async def run(self) -> None:
        """Write Events until cancelled."""
        await self._events.run()

    async def unscheduled(self, pod: PlacedPod, *, reason: str, why: str) -> None:
        """Say it; what can't be written now is written with the next try."""
        self._events.tell(
            regarding=_reference(pod), reason="FailedScheduling", action="Scheduling", note=why, warning=True
        )
        condition = condition_of(pod, reason=reason, why=why, now=self._clock.wall())
        if condition is None:
            return
        patch = strategic_patch({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}})
        meta = pod.metadata
        try:
            await self._client.patch(PODS, name=meta.name, namespace=meta.namespace, patch=patch, subresource="status")
        except (NotFoundError, ConflictError):
            log.debug("gone before it was told", extra={"pod": pod.key})
        except ApiError as error:
            log.warning("a pod was not told why it waits", extra={"pod": pod.key, "error": str(error)})


def condition_of(pod: PlacedPod, *, reason: str, why: str, now: float) -> Mapping[str, str] | None:
    """Give the condition to write; None where it stands there already."""
    found = next((one for one in pod.status.conditions if one.type == _CONDITION), PodCondition())
    if (found.status, found.reason, found.message) == ("False", reason, why):
        return None
    since = found.last_transition_time if found.status == "False" else None
    return {
        "type": _CONDITION,
        "status": "False",
        "reason": reason,
        "message": why,
        "lastTransitionTime": since or second_time(now),
    }


def _reference(pod: PlacedPod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
