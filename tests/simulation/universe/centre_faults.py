"""What breaks round the centre, by the seed: its replicas, kube-scheduler, clocks, and callers who mean no good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from aliquot_kube.errors import ApiError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES
from aliquot_scheduler.extender.verbs import Verb
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.kube_scheduler import SimKubeScheduler
from simulation.universe.replica import LAG, Service, SimReplica

# A leader takes some thousand steps in a minute.
LONGEST_LIFE = 6_000
DAY = 86_400.0


class CentreFaults:
    """Breaks the centre and mends it."""

    def __init__(
        self,
        *,
        replicas: Sequence[SimReplica],
        scheduler: SimKubeScheduler,
        service: Service,
        api: ApiServer,
        nodes: Sequence[str],
        chance: Chance,
        trace: Callable[[str], None],
        more: Mapping[str, float],
    ) -> None:
        """`more` are weights other than the usual ones, by fault."""
        self._replicas = replicas
        self._scheduler = scheduler
        self._service = service
        self._api = api
        self._nodes = nodes
        self._chance = chance
        self._trace = trace
        self._more = more
        self._stopped = False
        self._kinds: dict[Callable[[], Coroutine[Any, Any, None]], float] = {
            self._kill_leader: 4.0,
            self._kill_all: 0.7,
            self._stop_leader_gently: 1.5,
            self._crash_kube_scheduler: 1.5,
            self._kube_scheduler_lags: 1.5,
            self._calls_get_lost: 2.0,
            self._bindings_get_lost: 3.0,
            self._set_a_clock: 1.0,
            self._cordon: 1.0,
            self._replay: 3.0,
        }

    async def run(self, *, every: float) -> None:
        """Break things, until cancelled."""
        kinds = list(self._kinds)
        weights = [self._more.get(_said(kind), weight) for kind, weight in self._kinds.items()]
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self._chance.about(every))
                fault = self._chance.choices(kinds, weights)[0]
                self._trace(f"fault: {_said(fault)}")
                tasks.create_task(fault())

    async def keep(self, replica: SimReplica) -> None:
        """Start a replica anew whenever it has died."""
        while True:
            self._start(replica)
            assert replica.life is not None
            await replica.life.died
            self._trace(f"{replica.name} is dead after {replica.life.steps} steps, at {replica.life.last}")
            await asyncio.sleep(0.0 if self._chance.happens(0.3) else self._chance.about(5.0))

    async def mend(self) -> None:
        """Let all be well from now on."""
        self._stopped = True
        self._service.lost, self._service.lag, self._scheduler.lag = 0.0, LAG, 0.01
        for name in self._nodes:
            await self._mark(name, cordoned=False)
        self._scheduler.start()
        for replica in self._replicas:
            replica.clock.set_by = 0.0
            if replica.alive and replica.life:
                replica.life.spare()
            else:
                self._start(replica)

    def _start(self, replica: SimReplica) -> None:
        mortal = not self._stopped and self._chance.happens(0.5)
        die_at = int(self._chance.choice((100, 600, LONGEST_LIFE)) * self._chance.random()) + 1 if mortal else None
        replica.start(die_at=die_at)

    # --- replicas ----------------------------------------------------------------------------------------------------
    def _leader(self) -> SimReplica:
        return next((one for one in self._replicas if one.leads), self._chance.choice(self._replicas))

    async def _kill_leader(self) -> None:
        self._leader().kill()

    async def _kill_all(self) -> None:
        for replica in self._replicas:
            replica.kill()

    async def _stop_leader_gently(self) -> None:
        await self._leader().stop_gently()

    async def _set_a_clock(self) -> None:
        """Wall clocks jump by hours, and are set right again."""
        replica = self._chance.choice(self._replicas)
        replica.clock.set_by = self._chance.uniform(-DAY, DAY)
        await asyncio.sleep(self._chance.about(60.0))
        replica.clock.set_by = 0.0

    # --- kube-scheduler ----------------------------------------------------------------------------------------------
    async def _crash_kube_scheduler(self) -> None:
        self._scheduler.stop()
        await asyncio.sleep(self._chance.about(5.0))
        self._scheduler.start()

    async def _kube_scheduler_lags(self) -> None:
        self._scheduler.lag = 3.0
        await asyncio.sleep(self._chance.about(20.0))
        self._scheduler.lag = 0.01

    async def _calls_get_lost(self) -> None:
        self._service.lost, self._service.lag = 0.2, 0.5
        await asyncio.sleep(self._chance.about(20.0))
        self._service.lost, self._service.lag = 0.0, LAG

    async def _bindings_get_lost(self) -> None:
        self._api.trouble_bindings(slow=0.4, lost=0.4)
        await asyncio.sleep(self._chance.about(20.0))
        self._api.trouble_bindings(slow=0.0, lost=0.0)

    async def _replay(self) -> None:
        """Somebody sends bindings again that were sent before, also to nodes that were never offered."""
        for _ in range(self._chance.randrange(1, 6)):
            if not self._service.binds:
                return
            asked = json.loads(self._chance.choice(self._service.binds))
            if self._chance.happens(0.3):
                asked["Node"] = self._chance.choice((*self._nodes, "elsewhere"))
            try:
                await self._service.ask(Verb.BIND, json.dumps(asked).encode())
            except ApiError:
                continue

    # --- nodes -------------------------------------------------------------------------------------------------------
    async def _cordon(self) -> None:
        name = self._chance.choice(self._nodes)
        await self._mark(name, cordoned=True)
        await asyncio.sleep(self._chance.about(20.0))
        await self._mark(name, cordoned=False)

    async def _mark(self, name: str, *, cordoned: bool) -> None:
        try:
            await self._api.client.patch(NODES, name=name, patch=merge_patch({"spec": {"unschedulable": cordoned}}))
        except ApiError:
            return


def _said(fault: Callable[[], Coroutine[Any, Any, None]]) -> str:
    return fault.__name__.strip("_").replace("_", " ")
