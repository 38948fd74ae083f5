"""Writes down, on the pod and as an Event, that a pod will not get its slices: the shell round `ungranted`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from aliquot_agent.starting.ungranted import REASON, Complaint, Patience, condition
from aliquot_core.clock import Clock
from aliquot_core.instants import second_time
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, NotFoundError
from aliquot_kube.events import EventRecorder
from aliquot_kube.patches import strategic_patch
from aliquot_kube.resources import PODS

log = logging.getLogger(__name__)

LOOK_EVERY = 10.0


class Complaints:
    """One node's complaints."""

    def __init__(
        self,
        *,
        names: Names,
        clock: Clock,
        client: KubeClient,
        events: EventRecorder,
        pods: Callable[[], Iterable[Pod]],
    ) -> None:
        self._names = names
        self._clock = clock
        self._client = client
        self._events = events
        self._pods = pods
        self._patience = Patience(names=names)

    async def run(self) -> None:
        """Look every ten seconds, until cancelled."""
        while True:
            for complaint in self._patience.look(self._pods(), now=self._clock.monotonic()):
                await self._tell(complaint)
            await self._clock.sleep(LOOK_EVERY)

    async def _tell(self, complaint: Complaint) -> None:
        meta = complaint.pod.metadata
        now = second_time(self._clock.wall())
        change = condition(complaint.pod, names=self._names, now=now, reason=REASON, message=complaint.what)
        try:
            await self._client.patch(
                PODS, name=meta.name, namespace=meta.namespace, patch=strategic_patch(change), subresource="status"
            )
        except (NotFoundError, ConflictError):
            return  # it is gone
        except ApiError as error:
            log.warning("a pod's condition could not be written", extra={"pod": complaint.pod.key, "error": str(error)})
            return
        about = complaint.pod.reference
        self._events.tell(regarding=about, reason=REASON, action="Starting", note=complaint.what, warning=True)
        self._patience.told(complaint)
        log.warning("a pod has no valid grant", extra={"pod": complaint.pod.key, "reason": complaint.what})
