"""A replica of the centre: it reigns while it leads, and what is asked of it meanwhile its reign answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from aliquot_core.objects import Pod
from aliquot_kube.leadership import Leadership
from aliquot_scheduler.centre.binder import Binder, NotReadyError
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.extender.decisions import Filtered
from aliquot_scheduler.picture.there import There
from aliquot_scheduler.queues.judging.hardware import hardware_of
from aliquot_scheduler.queues.said.dues import Hardware


class Centre:
    """Fulfils `Decisions`, where this replica leads."""

    def __init__(
        self, *, leadership: Leadership, reign: Callable[[], Reign], ended: Callable[[], object] = lambda: None
    ) -> None:
        """`ended` is called when a reign is over and nothing of it is needed any more."""
        self._leadership = leadership
        self._new_reign = reign
        self._ended = ended
        self.reign: Reign | None = None

    async def run(self) -> None:
        """Reign whenever we lead, until cancelled."""
        while True:
            await self._leadership.until(leads=True)
            await self._reign()
            self._ended()

    async def _reign(self) -> None:
        self.reign = self._new_reign()
        reigning = asyncio.ensure_future(self.reign.run())
        ending = asyncio.ensure_future(self._leadership.until(leads=False))
        try:
            await asyncio.wait({reigning, ending}, return_when=asyncio.FIRST_COMPLETED)
            if reigning.done():
                reigning.result()
        finally:
            self.reign = None
            reigning.cancel()
            ending.cancel()
            await asyncio.gather(reigning, ending, return_exceptions=True)

    def there(self) -> There | None:
        """Which GPUs and nodes the cluster has; None where that is not known here."""
        if self.reign is None or self.reign.why_not():
            return None
        return self.reign.there()

    def hardware(self, models: Iterable[str]) -> Hardware:
        """What queues that name these models have to know of the cards; nothing where that is not known here."""
        if self.reign is None or self.reign.why_not():
            return Hardware()
        return hardware_of(self.reign.picture, models)

    def why_blind(self) -> str:
        """Why nothing can be decided here, though this replica leads; empty where it can, or another leads."""
        return self.reign.why_not() if self.reign else ""

    def why_deaf(self, *, after: float) -> str:
        """That the API server was not heard here for so long, though this replica leads."""
        return self.reign.why_deaf(after=after) if self.reign else ""

    def beating_nodes(self) -> int | None:
        """How many nodes have agents that show that they live; None where that is not known here."""
        return None if self.reign is None or self.reign.why_not() else self.reign.picture.beating

    async def one_for(self, victim: Pod) -> Pod | None:
        """For whom of those who run the cluster a pod with slices may be evicted by priority; None if for nobody."""
        return await self._reigning.for_the_cluster.one_for(victim)

    # --- Decisions ---------------------------------------------------------------------------------------------------
    def filter(self, pod: Pod, nodes: Sequence[str]) -> Filtered:
        """Which of these nodes have room."""
        return self._binder.filter(pod, nodes)

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How good each of these nodes is."""
        return self._binder.prioritize(pod, nodes)

    def prioritize_plain(self, pod: Pod, nodes: Sequence[str]) -> Sequence[int]:
        """How good each of these nodes is to a pod without slices."""
        return self._binder.prioritize_plain(pod, nodes)

    def preempt(self, pod: Pod, offered: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Of the victims that kube-scheduler would evict, those that may be."""
        return self._binder.preempt(pod, offered)

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind and grant in one write; empty, or why not."""
        return await self._binder.bind(namespace=namespace, name=name, uid=uid, node=node)

    @property
    def _binder(self) -> Binder:
        return self._reigning.binder

    @property
    def _reigning(self) -> Reign:
        if self.reign is None:
            raise NotReadyError("this replica does not lead", where="centre", remedy="ask the leader")
        return self.reign
