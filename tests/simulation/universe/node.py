"""One simulated node: hardware, folder, runtime, kubelet, endpoint, and the agent, whose code is the real one."""

from __future__ import annotations

from collections.abc import Callable

from aliquot_agent.door import DoorRefusedError
from aliquot_agent.health.health_memory import Remembered
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_agent.machine import Machine
from aliquot_agent.node_agent import NodeAgent
from aliquot_agent.settings import AgentSettings
from aliquot_core.names import Names
from aliquot_deviceplugin.cdi.driver_files import SimulatedDriverFiles
from aliquot_deviceplugin.cdi.store import SpecStore
from aliquot_deviceplugin.slice_specs import SliceSpecs
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.disk import Disk, DiskOf
from simulation.universe.endpoint import SimEndpoint
from simulation.universe.hardware import Hardware
from simulation.universe.kubelet import Eyes, SimKubelet, ViewOf
from simulation.universe.life import Life
from simulation.universe.loop import LoopClock, VirtualLoop
from simulation.universe.runtime import Plan, ResidentsOf, SimRuntime


class SimNode:
    """A node over all lives of its processes."""

    def __init__(
        self,
        *,
        name: str,
        names: Names,
        seed: int,
        loop: VirtualLoop,
        clock: LoopClock,
        api: ApiServer,
        gpus: int,
        settings: AgentSettings,
        plan_of: Callable[[str, str], Plan],
        trace: Callable[[str], None],
        status_every: float,
    ) -> None:
        self.name = name
        self.names = names
        self.settings = settings
        self.api = api
        self.hardware = Hardware(node=name, gpus=gpus, clock=clock)
        self.disk = Disk()
        self.eyes = Eyes()
        self.health = SimHealthFile()
        self.runtime = SimRuntime(loop=loop, disk=self.disk, chance=Chance(seed, f"{name} runtime"))
        self.endpoint = SimEndpoint(
            door_path=settings.door, loop=loop, clock=clock, names=names, chance=Chance(seed, f"{name} endpoint")
        )
        self.kubelet = SimKubelet(
            node=name,
            names=names,
            loop=loop,
            clock=clock,
            api=api,
            endpoint=self.endpoint,
            runtime=self.runtime,
            chance=Chance(seed, f"{name} kubelet"),
            plan_of=plan_of,
            trace=trace,
            status_every=status_every,
        )
        self.life: Life | None = None
        self.agent: NodeAgent | None = None
        self.lives = 0
        # How an agent ended that was not killed, and must not have.
        self.fallen: BaseException | None = None
        self._past: list[Life] = []
        self._loop = loop
        self._clock = clock
        self._seed = seed
        self._trace = trace

    def start_agent(self, *, die_at: int | None = None) -> Life:
        """Run the agent anew, with nothing but what it finds."""
        self._past = [*self.undead(), *([self.life] if self.life else [])]
        life = self.life = Life(self._loop, die_at=die_at)
        self.lives += 1
        agent = self.agent = self._make(life, number=self.lives)
        task = life.begin(agent.run)
        task.add_done_callback(lambda ended: self._ended(life, ended.exception() if not ended.cancelled() else None))
        return life

    def kill_agent(self) -> None:
        """`kill -9`."""
        if self.life is not None:
            self.life.kill()

    def undead(self) -> list[Life]:
        """Agents that died and whose coroutines go on: none, unless something can't be stopped."""
        return [life for life in self._past if life.tasks]

    def _ended(self, life: Life, error: BaseException | None) -> None:
        if not life.alive or life.died.cancelled():
            return
        self._trace(f"the agent ended by itself: {error!r}")
        # The one before us may not have left the door yet: then we are to leave, and are started again.
        if not isinstance(error, DoorRefusedError):
            self.fallen = error or RuntimeError("the agent came to an end")
        life.kill()

    def _make(self, life: Life, *, number: int) -> NodeAgent:
        store = SpecStore(names=self.names, folder=DiskOf(self.disk, life))
        chance = Chance(self._seed, f"{self.name} agent {number}")
        machine = Machine(
            driver=self.hardware.driver(),
            view=ViewOf(self.kubelet, life, self.eyes),
            residents=ResidentsOf(self.runtime, life),
            specs=SliceSpecs(names=self.names, store=store, driver_files=SimulatedDriverFiles()),
            missing_files=lambda: "",
            memory=self.health,
        )
        return NodeAgent(
            settings=self.settings,
            names=self.names,
            clock=self._clock,
            random=chance.random,
            identity=f"agent {number}",
            machine=machine,
            transport=self.api.wire(life),
            beat_transport=self.api.wire(life),
            policy=policy(HealthSettings(), names=self.names),
        )


class SimHealthFile:
    """What the agent keeps of its GPUs' health; it outlives the process, not a reboot."""

    def __init__(self) -> None:
        self._kept: tuple[Remembered, ...] = ()

    def load(self) -> tuple[Remembered, ...]:
        """What was kept last."""
        return self._kept

    def save(self, remembered: tuple[Remembered, ...]) -> None:
        """Keep this instead."""
        self._kept = remembered

    def wipe(self) -> None:
        """A reboot resets the GPUs, and with it goes what was wrong with them."""
        self._kept = ()
