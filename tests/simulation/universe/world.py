"""A whole run: build, let live and break, mend, judge. A failure names its seed and tells what went before it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Coroutine
from typing import Any

import msgspec

from aliquot_agent.settings import AgentSettings
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.resources import NODES, Resource
from simulation.universe import guard
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.endpoint import DOOR
from simulation.universe.ends import Ends
from simulation.universe.faults import Faults
from simulation.universe.judge import BrokenError, Judge
from simulation.universe.life import make_task
from simulation.universe.loop import LoopClock, VirtualLoop
from simulation.universe.node import SimNode
from simulation.universe.placer import Placer
from simulation.universe.runtime import Plan
from simulation.universe.workload import Habits, Workload

TOLD = 60
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
    bookmark: float = 60.0
    status_every: float = 10.0
    habits: Habits = Habits()
    # Within this time after the last fault all must be well: a watch that is silent is given up after 315 s.
    settle: float = 420.0
    # How a run is seen again, said where it fails.
    again: str = "ALIQUOT_SEED={seed} pytest tests/simulation/test_seeds.py"
    # When the last agent is to be seen well: looked at so often.
    look_every: float = 15.0


class SimulationError(AssertionError):
    """A seed that shows a defect."""


class World:
    """One API server and one node on one clock, from one seed."""

    def __init__(self, seed: int, scale: Scale) -> None:
        self.seed = seed
        self.scale = scale
        self.loop = VirtualLoop()
        self.loop.set_task_factory(make_task)
        self.clock = LoopClock(self.loop)
        self.names = Names()
        self.told: deque[str] = deque(maxlen=TOLD)
        self._digest = hashlib.sha256()
        self._gone: set[str] = set()
        self.api = ApiServer(loop=self.loop, clock=self.clock, seed=seed, bookmark=scale.bookmark)
        self.node = SimNode(
            name=NODE,
            names=self.names,
            seed=seed,
            loop=self.loop,
            clock=self.clock,
            api=self.api,
            gpus=scale.gpus,
            settings=AgentSettings(
                node_name=NODE,
                gpus="simulated",
                door=DOOR,
                heartbeat=scale.heartbeat,
                collect=scale.collect,
                sample=scale.sample,
            ),
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

    @property
    def digest(self) -> str:
        """What was told, as one number: equal for two runs of one seed."""
        return self._digest.hexdigest()

    def trace(self, text: str) -> None:
        """Remember that something happened."""
        line = f"{self.clock.monotonic():9.3f}  {text}"
        self._digest.update(line.encode())
        self.told.append(line)

    def run(self) -> None:
        """Live through the whole run; `SimulationError` tells what is wrong."""
        self.play(self._live())

    def play(self, main: Coroutine[Any, Any, None]) -> None:
        """Play something in this world; `SimulationError` tells what is wrong."""
        try:
            with guard.no_outside():
                self.loop.run(main)
        except (AssertionError, BrokenError) as error:
            raise self.failure(str(error)) from error

    def failure(self, what: str) -> SimulationError:
        """Say what was wrong, after what, and how to see it again."""
        before = "\n".join(self.told)
        return SimulationError(
            f"{what}\n\n  seed {self.seed}: again with {self.scale.again.format(seed=self.seed)}\n\n{before}"
        )

    async def furnish(self) -> None:
        """Put in what there is before anybody starts: our namespace, the node's object, endpoint and kubelet."""
        await self.api.create(NAMESPACES, {"metadata": {"name": self.names.namespace}})
        await self.api.create(NODES, {"metadata": {"name": NODE}})
        self.node.endpoint.start()
        self.node.kubelet.start()

    async def _live(self) -> None:
        await self.furnish()
        parts = [self.workload.run(), self.faults.run(every=self.scale.faults_every), self.faults.keep_agent()]
        tasks = [self.loop.spawn(part) for part in parts]
        await self.watch(tasks, self.scale.seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.trace("all faults end")
        await self.faults.mend()
        await self.workload.calm_down()
        placing = self.loop.spawn(self.workload.place_waiting())
        await self.until_well(placing)

    def forget_gone(self) -> None:
        """Drop the simulation's own notes of pods that are gone, and were gone when it was last called."""
        here = {pod.metadata.uid for pod in self.api.pods()} | self.node.kubelet.lives.keys()
        here |= {one.uid for one in self.node.runtime.running.values()}
        gone = self.judge.deeds.keys() - here
        past, self._gone = gone & self._gone, gone - self._gone
        self.judge.forget(past)
        self.workload.forget(past)

    async def watch(self, tasks: list[asyncio.Task[None]], seconds: float) -> None:
        """Let time pass, unless somebody ends who should not, or something is broken."""
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0:
            done, _ = await asyncio.wait(
                tasks, timeout=min(left, self.scale.look_every), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            if self.judge.broken is not None:
                raise self.judge.broken
            if self.node.fallen is not None:
                raise AssertionError(f"the agent fell: {self.node.fallen!r}") from self.node.fallen

    async def until_well(self, *tasks: asyncio.Task[None]) -> None:
        """Wait until all is well, but no longer than it may take."""
        end = self.clock.monotonic() + self.scale.settle
        while left := self.shortcomings():
            if self.clock.monotonic() >= end:
                raise AssertionError(f"{self.scale.settle:g} s after the last fault: {'; '.join(left)}")
            await self.watch(list(tasks), self.scale.look_every)

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
