"""All that tells the centre of a node's life: the heart-beat, what it says, and how often it beats."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aliquot_agent.publishing.life_sign import LifeSign
from aliquot_agent.publishing.pace import Pace
from aliquot_agent.signal import Signal
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.door import KubeletSeen
from aliquot_core.names import PACE_LEASE, Names
from aliquot_kube.client import KubeClient
from aliquot_kube.heartbeat import HEART_BEAT_TIMEOUTS, HeartBeat
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.questions import Transport


class SignsOfLife:
    """One node's heart-beat; it has a transport of its own, so that it never waits behind other requests."""

    def __init__(
        self,
        *,
        node: str,
        names: Names,
        clock: Clock,
        random: Random,
        holder: str,
        interval: float,
        client: KubeClient,
        beat_transport: Transport,
        kubelet: Callable[[], KubeletSeen | None],
        changed: Signal,
    ) -> None:
        """`client` reads the pace; `changed` tells that what `kubelet` says is another."""
        self._beat = HeartBeat(
            keeper=LeaseKeeper(
                client=KubeClient(transport=beat_transport, timeouts=HEART_BEAT_TIMEOUTS),
                namespace=names.namespace,
                name=names.lease(node),
            ),
            clock=clock,
            random=random,
            holder=holder,
            interval=interval,
        )
        self._pace = Pace(
            beat=self._beat,
            keeper=LeaseKeeper(client=client, namespace=names.namespace, name=PACE_LEASE),
            names=names,
            clock=clock,
            random=random,
        )
        self._sign = LifeSign(beat=self._beat, names=names, clock=clock, kubelet=kubelet, changed=changed)

    @property
    def age(self) -> float | None:
        """Seconds since the API server last took our sign of life."""
        return self._beat.age

    async def leave(self) -> None:
        """Say `draining`; returns when the API server has taken it."""
        await self._sign.leave()

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What is to run."""
        return self._beat.run(), self._pace.run(), self._sign.run()
