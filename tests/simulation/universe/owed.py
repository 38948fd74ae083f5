"""Whom a guarantee is owed, found from what pods ask and where they are bound: nothing of the centre is asked.

A guarantee is demanded, and can be met, for a pod that

1. waits: it has no node, and nobody has deleted it;
2. lies inside: what its queue's pods ask that are bound or have their turn, and what it asks, is no more compute than
   is guaranteed; and
3. would have room on some node, beside all that is not borrowed, if whatever is borrowed were gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from simulation.universe.api import ApiServer
from simulation.universe.holders import asked_in_all
from simulation.universe.placer import Placer


class Owed:
    """For how long which pods of one queue have been owed its guarantee."""

    def __init__(
        self,
        *,
        names: Names,
        api: ApiServer,
        placers: Sequence[Placer],
        now: Callable[[], float],
        queue: str,
        guarantee: int,
    ) -> None:
        """All that other queues use is borrowed; `guarantee` is of compute."""
        self._names = names
        self._api = api
        self._placers = placers
        self._now = now
        self._queue = queue
        self._guarantee = guarantee
        self._since: dict[str, float] = {}

    def look(self) -> dict[str, float]:
        """Who is owed it now, and for how many seconds."""
        now, owed = self._now(), self._owed()
        self._since = {pod.metadata.uid: self._since.get(pod.metadata.uid, now) for pod in owed}
        return {pod.key: now - self._since[pod.metadata.uid] for pod in owed}

    def _owed(self) -> list[Pod]:
        pods = [pod for pod in self._api.pods() if not pod.ended]
        mine = [pod for pod in pods if pod.metadata.labels.get(self._names.queue) == self._queue]
        mine_uids = {pod.metadata.uid for pod in mine}
        borrowed = [pod.metadata.uid for pod in pods if pod.metadata.uid not in mine_uids]
        waiting = [pod for pod in mine if not pod.spec.node_name and not pod.metadata.deletion_timestamp]
        return [
            pod
            for pod in waiting
            if self._is_inside(pod, mine) and any(one.has_room(pod, without=borrowed) for one in self._placers)
        ]

    def _is_inside(self, pod: Pod, mine: Sequence[Pod]) -> bool:
        """Who asks for no compute demands nothing of it."""
        asked = asked_in_all(pod, self._names.compute)
        others = [one for one in mine if one is not pod and (one.spec.node_name or not one.spec.scheduling_gates)]
        used = sum(asked_in_all(one, self._names.compute) for one in others)
        return 0 < asked <= self._guarantee - used
