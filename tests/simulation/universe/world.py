"""A whole run of one node: build, let live and break, mend, judge; the scheduler has few lines and no mistakes."""

from __future__ import annotations

import msgspec

from aliquot_agent.settings import AgentSettings
from aliquot_core.objects import Node
from aliquot_kube.resources import NODES, Resource
from simulation.universe.chance import Chance
from simulation.universe.ends import Ends
from simulation.universe.faults import Faults
from simulation.universe.judge import Judge
from simulation.universe.node import SimNode
from simulation.universe.placer import Placer
from simulation.universe.run import Run
from simulation.universe.runtime import Plan
from simulation.universe.workload import Habits, Workload

NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", type=Node, namespaced=False)
NODE = "node-1"


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how wild a run is."""

    seconds: float = 240.0
    faults_every: float = 8.0
    # Whether faults end the agent too.
    deadly: bool = True
    gpus: int = 3
    heartbeat: float = 5.0
    collect: float = 60.0
    sample: float = 10.0
    best_effort_slots: int = 32
    bookmark: float = 60.0
    status_every: float = 10.0
    habits: Habits = Habits()
    # Within this time after the last fault all must be well: a watch that is silent is given up after 315 s.
    settle: float = 420.0
    # How a run is seen again, said where it fails.
    again: str = "ALIQUOT_SEED={seed} pytest tests/simulation/test_seeds.py"
    # When the last agent is to be seen well: looked at so often.
    look_every: float = 15.0

    def agent(self, node: str) -> AgentSettings:
        """The settings of a node's agent."""
        return AgentSettings(
            node_name=node,
            gpus="simulated",
            # All nodes are on one loop.
            door=f"/run/{node}/door.sock",
            heartbeat=self.heartbeat,
            collect=self.collect,
            sample=self.sample,
            best_effort_slots=self.best_effort_slots,
        )


class World(Run):
    """One API server and one node on one clock, from one seed."""

    def __init__(self, seed: int, scale: Scale) -> None:
        super().__init__(seed, again=scale.again, bookmark=scale.bookmark, look_every=scale.look_every)
        self.scale = scale
        self._gone: set[str] = set()
        self.node = SimNode(
            name=NODE,
            names=self.names,
            seed=seed,
            loop=self.loop,
            clock=self.clock,
            api=self.api,
            gpus=scale.gpus,
            settings=scale.agent(NODE),
            plan_of=self._plan_of,
            trace=self.trace,
            status_every=scale.status_every,
        )
        self.judge = Judge(
            hardware=self.node.hardware, runtime=self.node.runtime, now=self.clock.monotonic, trace=self.trace
        )
        self.placer = Placer(
            node=NODE,
            names=self.names,
            api=self.api,
            hardware=self.node.hardware,
            chance=Chance(seed, "placer"),
            deeds=self.judge.deeds,
            trace=self.trace,
        )
        self.workload = Workload(
            names=self.names,
            api=self.api,
            placer=self.placer,
            chance=Chance(seed, "workload"),
            habits=scale.habits,
            deeds=self.judge.deeds,
            trace=self.trace,
        )
        self.faults = Faults(
            node=self.node,
            api=self.api,
            names=self.names,
            chance=Chance(seed, "faults"),
            trace=self.trace,
            deadly=scale.deadly,
        )

    def _plan_of(self, uid: str, container: str) -> Plan:
        """What the workload says; it is made after the node that asks."""
        return self.workload.plan_of(uid, container)

    def run(self) -> None:
        """Live through the whole run; `SimulationError` tells what is wrong."""
        self.play(self._live())

    async def furnish(self) -> None:
        """Put in what there is before anybody starts: our namespace, the node's object, endpoint and kubelet."""
        await self.api.create(NAMESPACES, {"metadata": {"name": self.names.namespace}})
        await self.api.create(NODES, {"metadata": {"name": NODE}})
        self.node.endpoint.start()
        self.node.kubelet.start()

    async def _live(self) -> None:
        await self.furnish()
        parts = [self.workload.run(), self.faults.run(every=self.scale.faults_every), self.faults.keep_agent()]
        await self.live_through(parts, seconds=self.scale.seconds)
        self.trace("all faults end")
        await self.faults.mend()
        await self.workload.calm_down()
        placing = self.loop.spawn(self.workload.place_waiting())
        await self.until_well(placing, within=self.scale.settle)

    def forget_gone(self) -> None:
        """Drop the simulation's own notes of pods that are gone, and were gone when it was last called."""
        here = {pod.metadata.uid for pod in self.api.pods()} | self.node.kubelet.lives.keys()
        here |= {one.uid for one in self.node.runtime.running.values()}
        gone = self.judge.deeds.keys() - here
        past, self._gone = gone & self._gone, gone - self._gone
        self.judge.forget(past)
        self.workload.forget(past)

    def raise_broken(self) -> None:
        """What the judge has found, or the agent's own end."""
        if self.judge.broken is not None:
            raise self.judge.broken
        if self.node.fallen is not None:
            raise AssertionError(f"the agent fell: {self.node.fallen!r}") from self.node.fallen

    def shortcomings(self) -> list[str]:
        """What is not well yet."""
        ends = Ends(
            node=self.node,
            api=self.api,
            names=self.names,
            loop=self.loop,
            deeds=self.judge.deeds,
            wall=self.clock.wall(),
        )
        return list(ends.shortcomings(failed_for_a_reason=self.faults.no_plugin > 0))
