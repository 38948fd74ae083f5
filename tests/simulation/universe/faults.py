"""Everything that breaks, by the seed: each fault comes, lasts and is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aliquot_core.names import Names
from aliquot_kube.errors import ApiError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES
from simulation.universe.api import STORM, ApiServer, Weather
from simulation.universe.chance import Chance
from simulation.universe.node import SimNode

# An agent's life takes some thousand steps in a minute; a crash is to come anywhere among them.
LONGEST_LIFE = 4_000


class Faults:
    """Breaks one node and its API server, and mends them."""

    def __init__(
        self,
        *,
        node: SimNode,
        api: ApiServer,
        names: Names,
        chance: Chance,
        trace: Callable[[str], None],
        deadly: bool = True,
    ) -> None:
        """`deadly` faults end the agent too; without them one agent lives through all the others."""
        self._deadly = deadly
        self._node = node
        self._api = api
        self._names = names
        self._chance = chance
        self._trace = trace
        self._stopped = False
        # Pods may fail at admission through no fault of ours while these last, and were counted from here.
        self.no_plugin = 0
        self._deaths: dict[Callable[[], Coroutine[Any, Any, None]], float] = {
            self._kill_agent: 6.0,
            self._stop_agent_gently: 1.0,
            self._reboot: 0.7,
        }
        self._troubles: dict[Callable[[], Coroutine[Any, Any, None]], float] = {
            self._restart_kubelet: 2.0,
            self._crash_endpoint: 0.7,
            self._api_away: 2.0,
            self._compact: 2.0,
            self._cut: 2.0,
            self._lose_gpu: 3.0,
            self._slow_gpu: 1.0,
            self._break_driver: 0.7,
            self._hide_record: 1.0,
            self._exhaust: 1.0,
            self._fill_disk: 1.0,
            self._spoil_disk: 1.0,
            self._strip_node: 1.0,
            self._delete_node: 0.5,
            self._kubelet_lags: 1.5,
        }

    async def run(self, *, every: float) -> None:
        """Break things, until cancelled."""
        self._api.weather(STORM if self._chance.happens(0.7) else Weather(lag=0.01))
        chosen = self._deaths | self._troubles if self._deadly else self._troubles
        kinds, weights = list(chosen), list(chosen.values())
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self._chance.about(every))
                fault = self._chance.choices(kinds, weights)[0]
                self._trace(f"fault: {fault.__name__.strip('_').replace('_', ' ')}")
                tasks.create_task(fault())

    async def mend(self) -> None:
        """Let all be well from now on, whatever was broken."""
        self._stopped = True
        self._api.weather(Weather())
        self._api.come_back()
        node = self._node
        node.hardware.mend()
        node.eyes.blind_to_record = node.eyes.exhausted = False
        node.eyes.slowness = 0.003
        node.disk.full = node.disk.unreadable = False
        node.kubelet.lag = 0.01
        node.endpoint.start()
        node.kubelet.start()
        node.kubelet.register()
        if node.life is None or not node.life.alive:
            self._start_agent()
        else:
            # One that was to die at some step yet stays, but no longer than till all is judged.
            node.life.spare()

    # --- the agent ---------------------------------------------------------------------------------------------------
    async def keep_agent(self) -> None:
        """Start the agent anew whenever it has died."""
        while True:
            self._start_agent()
            assert self._node.life is not None
            await self._node.life.died
            self._trace(f"the agent is dead after {self._node.life.steps} steps, at {self._node.life.last}")
            await asyncio.sleep(0.0 if self._chance.happens(0.3) else self._chance.about(3.0))

    def _start_agent(self) -> None:
        mortal = self._deadly and not self._stopped and self._chance.happens(0.5)
        # Most of what can go wrong is near the beginning.
        die_at = int(self._chance.choice((60, 300, LONGEST_LIFE)) * self._chance.random()) + 1 if mortal else None
        self._node.start_agent(die_at=die_at)

    async def _kill_agent(self) -> None:
        self._node.kill_agent()

    async def _stop_agent_gently(self) -> None:
        life, agent = self._node.life, self._node.agent
        if life is None or agent is None or not life.alive:
            return
        leaving = life.begin(agent.drain)
        try:
            await asyncio.wait([leaving], timeout=30.0)
        finally:
            life.kill()

    # --- kubelet, endpoint, machine ----------------------------------------------------------------------------------
    async def _restart_kubelet(self) -> None:
        self._node.kubelet.stop()
        await asyncio.sleep(self._chance.about(4.0))
        self._node.kubelet.start()

    async def _crash_endpoint(self) -> None:
        endpoint, kubelet = self._node.endpoint, self._node.kubelet
        self.no_plugin += 1
        kubelet.plugin_gone()
        endpoint.crash()
        await asyncio.sleep(self._chance.about(0.5))
        endpoint.start()
        await asyncio.sleep(0.02)
        kubelet.register()

    async def _reboot(self) -> None:
        node = self._node
        self.no_plugin += 1
        node.kubelet.stop()
        node.kill_agent()
        node.endpoint.crash()
        node.runtime.kill_all()
        node.disk.wipe()
        node.health.wipe()
        await asyncio.sleep(self._chance.uniform(5.0, 30.0))
        node.endpoint.start()
        node.kubelet.start()
        node.kubelet.register()

    async def _kubelet_lags(self) -> None:
        self._node.kubelet.lag = 2.0
        await asyncio.sleep(self._chance.about(15.0))
        self._node.kubelet.lag = 0.01

    # --- the API server ----------------------------------------------------------------------------------------------
    async def _api_away(self) -> None:
        self._api.go_away()
        await asyncio.sleep(self._chance.choice((2.0, 60.0)))
        self._api.come_back()

    async def _compact(self) -> None:
        self._api.compact()
        self._api.cut_watches()

    async def _cut(self) -> None:
        self._api.cut_watches()

    async def _strip_node(self) -> None:
        """Somebody takes away what we wrote on the node."""
        node = self._api.node(self._node.name)
        if node is None:
            return
        change: dict[str, Any] = {"metadata": {"annotations": {self._names.inventory: "{}"}, "labels": None}}
        await self._patch(change, subresource="")
        await self._patch({"status": {"capacity": {self._names.memory: "0"}}}, subresource="status")

    async def _delete_node(self) -> None:
        try:
            await self._api.client.delete(NODES, name=self._node.name)
        except ApiError:
            return

    async def _patch(self, change: dict[str, Any], *, subresource: str) -> None:
        try:
            await self._api.client.patch(
                NODES, name=self._node.name, patch=merge_patch(change), subresource=subresource
            )
        except ApiError:
            return

    # --- GPUs, files, the agent's eyes -------------------------------------------------------------------------------
    async def _lose_gpu(self) -> None:
        index = self._chance.randrange(len(self._node.hardware.uuids))
        self.no_plugin += 1
        self._node.hardware.lose(index)
        await asyncio.sleep(self._chance.about(90.0))
        self._node.hardware.recover(index)

    async def _slow_gpu(self) -> None:
        index = self._chance.randrange(len(self._node.hardware.uuids))
        self.no_plugin += 1
        self._node.hardware.slow(index, self._chance.choice((0.5, 20.0)))
        await asyncio.sleep(self._chance.about(30.0))
        self._node.hardware.slow(index, 0.0)

    async def _break_driver(self) -> None:
        self.no_plugin += 1
        self._node.hardware.refuse(refused=True)
        await asyncio.sleep(self._chance.about(20.0))
        self._node.hardware.refuse(refused=False)

    async def _hide_record(self) -> None:
        self._node.eyes.blind_to_record = True
        await asyncio.sleep(self._chance.about(20.0))
        self._node.eyes.blind_to_record = False

    async def _exhaust(self) -> None:
        eyes = self._node.eyes
        eyes.exhausted, eyes.slowness = self._chance.happens(0.5), self._chance.uniform(0.1, 5.0)
        await asyncio.sleep(self._chance.about(20.0))
        eyes.exhausted, eyes.slowness = False, 0.003

    async def _fill_disk(self) -> None:
        self._node.disk.full = True
        await asyncio.sleep(self._chance.about(20.0))
        self._node.disk.full = False

    async def _spoil_disk(self) -> None:
        self._node.disk.unreadable = True
        await asyncio.sleep(self._chance.about(10.0))
        self._node.disk.unreadable = False
