"""Evicts pods that use more than they were granted: their node's agent says so on them, and may evict nobody itself.

Who keeps inside before the grace is over stays. Disruption budgets hold, and the pod's own grace: it is asked again
until it goes, or its agent takes the word back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from aliquot_core.clock import Clock
from aliquot_core.instants import seconds_of
from aliquot_core.isolation import is_over_use
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError, ConflictError, DisruptionBlockedError, NotFoundError
from aliquot_kube.leadership import NotLeadingError
from aliquot_scheduler.centre.pod_events import PodEvents
from aliquot_scheduler.queues.notices import Notice

log = logging.getLogger(__name__)

# Grace is counted in whole seconds of two machines' clocks.
_LOOK = 5.0


def overdue(pods: Iterable[Pod], *, names: Names, wall: float, grace: float) -> list[tuple[Pod, str]]:
    """The pods whose grace is over, with what was said of them. Pure."""
    found = []
    for pod in pods:
        said = is_over_use(pod, names=names)
        if said is None or pod.ended or not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            continue
        since = seconds_of(said.last_transition_time)
        if since is not None and wall - since >= grace:
            found.append((pod, said.message))
    return found


class OverUseEvictor:
    """Carries it out, for whoever leads."""

    def __init__(
        self,
        *,
        client: KubeClient,
        clock: Clock,
        names: Names,
        grace: float,
        events: PodEvents,
        why_not: Callable[[], str],
    ) -> None:
        self._client = client
        self._clock = clock
        self._names = names
        self._grace = grace
        self._events = events
        # By UID, whom agents have given up.
        self._given_up: dict[str, Pod] = {}
        self._why_not = why_not
        # How many went.
        self.evicted = 0

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what the watch tells: of thousands of pods next to none is to be looked at again."""
        match change:
            case Deleted(old=pod):
                self._given_up.pop(pod.metadata.uid, None)
            case Modified(old=old, new=pod) if old.metadata.uid != pod.metadata.uid:
                self._given_up.pop(old.metadata.uid, None)
                self._seen(pod)
            case Added(new=pod) | Modified(new=pod):
                self._seen(pod)

    def _seen(self, pod: Pod) -> None:
        if is_over_use(pod, names=self._names):
            self._given_up[pod.metadata.uid] = pod
        else:
            self._given_up.pop(pod.metadata.uid, None)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK)
            wall = self._clock.wall()
            for pod, said in overdue(list(self._given_up.values()), names=self._names, wall=wall, grace=self._grace):
                if not self._why_not():
                    await self._evict(pod, said)

    async def _evict(self, pod: Pod, said: str) -> None:
        meta = pod.metadata
        try:
            await self._client.evict(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return  # it is gone
        except DisruptionBlockedError as error:
            log.info("a disruption budget keeps a pod", extra={"pod": pod.key, "error": str(error)})
        except (ApiError, NotLeadingError) as error:
            log.warning("a pod can't be asked to go", extra={"pod": pod.key, "error": str(error)})
        else:
            self.evicted += 1
            self._events.tell(pod, Notice(reason="OverUse", message=said), action="Evicting")
            log.info("evicted for over-use", extra={"pod": pod.key, "said": said})
