"""Who runs the cluster and waits for room, read from the API server itself: where no leader can be asked about that.

It goes by namespaces alone, and these are few: the system's, ours, and those that an operator has labelled. Of them the
pods that have no node are listed, one list for all who ask in a moment, and judged as the leader judges them. It is the
API server's word as it stands, so nothing is followed meanwhile; before it is said that nobody waits it is asked once
more, for kube-scheduler nominates beside its evictions (`extender/preemptors.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from typing import Final

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import ApiError
from aliquot_kube.resources import NAMESPACES, PODS
from aliquot_kube.transport import Timeouts, Transport
from aliquot_scheduler.extender.preempting import LABELLED, NO_LABELS, SYSTEM
from aliquot_scheduler.extender.preemptors import NOMINATED_WITHIN, Preemptors

log = logging.getLogger(__name__)

# The API server waits for our answer meanwhile.
_READS: Final = Timeouts(connect=0.5, silence=1.0, total=1.0)
# Between the beginnings of two looks.
_BETWEEN: Final = 0.1
_REMEDY: Final = "see what the API server says; kube-scheduler evicts as without us meanwhile"
# Lists of pods that are under way at once: so all are there after three of them, and bindings find room beside.
_AT_ONCE: Final = 8
# Where there are more of either something else is wrong, and reading them takes longer than anybody waits.
MOST_NAMESPACES: Final = 20
MOST_PODS: Final = 500


class UnseenError(ClusterError):
    """The API server has not said who waits."""


class Onlooker:
    """Looks when it is asked; of what it has seen it keeps who waits, and since when."""

    def __init__(self, *, transport: Transport, clock: Clock, names: Names) -> None:
        self._client = KubeClient(transport=transport, timeouts=_READS)
        self._clock, self._names = clock, names
        self._waiting = Preemptors(names=names)
        self._seen: Mapping[str, Pod] = {}
        self._looking = asyncio.Lock()
        # The last look: when it began, and why it has shown nothing.
        self._began, self._why = -math.inf, ""

    async def one_for(self, victim: Pod) -> Pod | None:
        """For whom of those who run the cluster it may go; None if there is nobody after a moment either."""
        asked = self._clock.monotonic()
        for since in (asked, asked + NOMINATED_WITHIN):
            why = await self._looked(since=since)
            found = None if why else self._waiting.one_for(victim, now=self._clock.monotonic())
            if found is not None:
                return found
        if why:
            raise UnseenError(f"who waits could not be read: {why}", where="admission", remedy=_REMEDY)
        return None

    async def _looked(self, *, since: float) -> str:
        """By a look that began no earlier, our own or that of somebody who asks too: why it has shown nothing."""
        await self._sleep_until(since)
        async with self._looking:
            if self._began < since:
                await self._sleep_until(self._began + _BETWEEN)
                await self._look()
            return self._why

    async def _sleep_until(self, instant: float) -> None:
        if (left := instant - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)

    async def _look(self) -> None:
        began = self._clock.monotonic()
        try:
            self._take_in(await self._listed())
        except ApiError as error:
            self._began, self._why = began, str(error)
        else:
            self._began, self._why = began, ""

    async def _listed(self) -> list[tuple[Pod, Mapping[str, str]]]:
        """Each with what is known of its namespace's labels."""
        label = {self._names.runs_the_cluster: LABELLED}
        selector = ",".join(f"{key}={value}" for key, value in label.items())
        labelled = await self._client.list(NAMESPACES, label_selector=selector, most=MOST_NAMESPACES)
        labels: dict[str, Mapping[str, str]] = {one.metadata.name: label for one in labelled}
        labels |= {SYSTEM: NO_LABELS, self._names.namespace: NO_LABELS}
        places = asyncio.Semaphore(_AT_ONCE)
        lists = [asyncio.create_task(self._without_node(namespace, places=places)) for namespace in labels]
        try:
            found = await asyncio.gather(*lists)
        finally:
            # Of the others nothing is wanted where one fails, or nobody waits any more.
            for one in lists:
                one.cancel()
        return [(pod, of) for of, pods in zip(labels.values(), found, strict=True) for pod in pods]

    async def _without_node(self, namespace: str, *, places: asyncio.Semaphore) -> list[Pod]:
        async with places:
            return await self._client.list(PODS, namespace=namespace, field_selector="spec.nodeName=", most=MOST_PODS)

    def _take_in(self, found: list[tuple[Pod, Mapping[str, str]]]) -> None:
        now = self._clock.monotonic()
        there = {pod.metadata.uid: pod for pod, _ in found}
        for uid, pod in self._seen.items():
            if uid not in there:
                self._waiting.gone(pod)
        self._seen = there
        for pod, labels in found:
            try:
                self._waiting.seen(pod, labels=labels, now=now)
            except Exception:  # a defect of ours: for this pod nobody goes, and the others are judged
                log.exception("a pod that waits could not be taken in", extra={"pod": pod.key})
