"""Events of pods that begin to wait for another reason, or wait no more: what people read under `kubectl describe`.

They are a courtesy beside the condition: what can't be written in time is dropped, and no admission waits for them.
Conditions and Events share what the centre may write about waiting, 20 a second; Events get a fifth of it.
"""

from __future__ import annotations

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import ObjectReference, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger, Limits
from aliquot_kube.events import EventRecorder, Failed
from aliquot_scheduler.queues.telling.notices import Notice

PER_SECOND = 4
# What is older than a minute when it is written explains nothing any more.
_LIMITS = Limits(all_burst=1.0, all_per_second=PER_SECOND, most_series=60 * PER_SECOND)
# The API's own limit.
_LONGEST_INSTANCE = 128


class PodEvents:
    """Tells people of pods, and of nodes that pods can't lie on."""

    def __init__(self, *, client: KubeClient, clock: Clock, random: Random, names: Names, instance: str) -> None:
        """`instance` says which replica tells."""
        self._recorder = EventRecorder(
            client=client,
            clock=clock,
            random=random,
            controller=names.of("scheduler"),
            instance=instance[:_LONGEST_INSTANCE],
            ledger=EventLedger(limits=_LIMITS),
        )

    def tell(self, pod: Pod, notice: Notice, *, action: str, warning: bool = False) -> None:
        """Costs nothing now."""
        self._recorder.tell(
            regarding=pod.reference, reason=notice.reason, action=action, note=notice.message, warning=warning
        )

    def tell_of_node(self, node: str, notice: Notice, *, action: str, warning: bool = False) -> None:
        """Costs nothing now."""
        # Under its name for an UID, by which the kubelet's own are found too.
        regarding = ObjectReference(api_version="v1", kind="Node", name=node, uid=node)
        self._recorder.tell(
            regarding=regarding, reason=notice.reason, action=action, note=notice.message, warning=warning
        )

    async def run(self, *, failed: Failed | None = None) -> None:
        """Write them until cancelled; `failed` is told of a defect, which is raised without it."""
        await self._recorder.run(failed=failed)
