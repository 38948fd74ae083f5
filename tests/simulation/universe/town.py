"""A whole run of several nodes and the centre: the scheduler's seat is taken by the real one.

Nodes, users and network are those of `World`; pods come in gated, and nobody but the centre grants anything.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import msgspec

from aliquot_core.objects import Pod
from aliquot_kube.resources import NODES
from simulation.universe.api import LANDS_WITHIN
from simulation.universe.books import Books
from simulation.universe.centre_ends import CentreEnds
from simulation.universe.centre_faults import CentreFaults
from simulation.universe.chance import Chance
from simulation.universe.ends import Ends
from simulation.universe.faults import Faults
from simulation.universe.judge import Deed, Judge
from simulation.universe.kube_scheduler import SimKubeScheduler
from simulation.universe.node import SimNode
from simulation.universe.placer import Placer
from simulation.universe.replica import Service, SimReplica
from simulation.universe.run import Run
from simulation.universe.runtime import Plan
from simulation.universe.workload import Habits, Workload
from simulation.universe.world import NAMESPACES, Scale

# A leader that is killed is followed by another within its lease's length, a look, and the time to read all. Then a pod
# that it had let through is asked for by kube-scheduler, or woken after half a minute.
SUCCESSION = 60.0
HONEST = Habits(between_pods=3.0, most_pods=16, bad=0.0, overcommitted=0.0, hasty=0.0, tampered=0.0, forever=0.3)


class TownScale(Scale, frozen=True, kw_only=True):
    """How long and how wild a run with a centre is."""

    nodes: int = 2
    replicas: int = 2
    gpus: int = 2
    # Of nodes that have more or fewer.
    gpus_of: Mapping[str, int] = msgspec.field(default_factory=dict)
    seconds: float = 180.0
    # So few that they run out.
    best_effort_slots: int = 1
    # Of each node, and of the centre.
    faults_every: float = 20.0
    centre_faults_every: float = 8.0
    # Weights of the centre's faults other than the usual ones.
    centre_faults: Mapping[str, float] = msgspec.field(default_factory=dict)
    habits: Habits = HONEST
    again: str = "ALIQUOT_SEED={seed} pytest tests/simulation/test_seeds_of_towns.py"


class Latecomer(msgspec.Struct, frozen=True, kw_only=True):
    """A node that joins later, and who breaks it, and who says where it would have room."""

    node: SimNode
    placer: Placer
    faults: Faults


class Seat:
    """Where `Placer` sits for one node: here the centre places, by itself."""

    async def place(self, pod: Pod, *, bad: str, overcommit: bool, hasty: bool) -> bool:  # noqa: ARG002 - the seat's
        """Leave it to the centre."""
        return True


class Town(Run):
    """One API server, several nodes, a kube-scheduler and the centre's replicas on one clock, from one seed."""

    def __init__(self, seed: int, scale: TownScale) -> None:
        super().__init__(seed, again=scale.again, bookmark=scale.bookmark, look_every=scale.look_every)
        self.scale = scale
        self.deeds: dict[str, Deed] = {}
        self.nodes = [self._node(f"node-{number}") for number in range(1, scale.nodes + 1)]
        self.judges = [self._judge(node) for node in self.nodes]
        self.placers = [self._placer(node) for node in self.nodes]
        memory = self.nodes[0].hardware.memory
        self.books = Books(names=self.names, api=self.api, memory=memory, deeds=self.deeds, trace=self.trace)
        self.replicas = self._replicas()
        self.service = Service(replicas=self.replicas, chance=Chance(seed, "service"))
        self.scheduler = SimKubeScheduler(
            names=self.names,
            loop=self.loop,
            clock=self.clock,
            api=self.api,
            chance=Chance(seed, "kube-scheduler"),
            ask=self.service.ask,
            trace=self.trace,
        )
        self.workload = Workload(
            names=self.names,
            api=self.api,
            placer=Seat(),
            chance=Chance(seed, "workload"),
            habits=scale.habits,
            deeds=self.deeds,
            trace=self.trace,
            gate=self.names.gate,
        )
        self.faults = [self._faults_of(node) for node in self.nodes]
        self.centre_faults = CentreFaults(
            replicas=self.replicas,
            scheduler=self.scheduler,
            service=self.service,
            api=self.api,
            nodes=[node.name for node in self.nodes],
            chance=Chance(seed, "centre faults"),
            trace=self.trace,
            more=scale.centre_faults,
        )

    # --- who lives here ----------------------------------------------------------------------------------------------
    def _node(self, name: str) -> SimNode:
        return SimNode(
            name=name,
            names=self.names,
            seed=self.seed,
            loop=self.loop,
            clock=self.clock,
            api=self.api,
            gpus=self.scale.gpus_of.get(name, self.scale.gpus),
            settings=self.scale.agent(name),
            plan_of=self._plan_of,
            trace=self.trace,
            status_every=self.scale.status_every,
        )

    def _plan_of(self, uid: str, container: str) -> Plan:
        """What the workload says; it is made after the nodes that ask."""
        return self.workload.plan_of(uid, container)

    def _judge(self, node: SimNode) -> Judge:
        now = self.clock.monotonic
        return Judge(hardware=node.hardware, runtime=node.runtime, now=now, trace=self.trace, deeds=self.deeds)

    def _placer(self, node: SimNode) -> Placer:
        """One who says where there would be room, and places nobody."""
        return Placer(
            node=node.name,
            names=self.names,
            api=self.api,
            hardware=node.hardware,
            chance=Chance(self.seed, f"{node.name} placer"),
            deeds=self.deeds,
            trace=self.trace,
        )

    def _replicas(self) -> list[SimReplica]:
        made: dict[str, SimReplica] = {}
        for number in range(1, self.scale.replicas + 1):
            name = f"centre-{number}"
            made[name] = SimReplica(
                name=name,
                names=self.names,
                seed=self.seed,
                loop=self.loop,
                api=self.api,
                books=self.books,
                peers=made,
                trace=self.trace,
            )
        return list(made.values())

    def _faults_of(self, node: SimNode) -> Faults:
        chance = Chance(self.seed, f"{node.name} faults")
        return Faults(
            node=node, api=self.api, names=self.names, chance=chance, trace=self.trace, deadly=self.scale.deadly
        )

    # --- how they live -----------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Live through the whole run; `SimulationError` tells what is wrong."""
        self.play(self._live())

    async def furnish(self) -> None:
        """Put in what there is before any agent or replica starts."""
        await self.api.create(NAMESPACES, {"metadata": {"name": self.names.namespace}})
        for node in self.nodes:
            await self.api.create(NODES, {"metadata": {"name": node.name}})
            node.endpoint.start()
            node.kubelet.start()
        self.scheduler.start()

    def hold_back(self) -> Latecomer:
        """The last node, which is not there in the beginning."""
        return Latecomer(node=self.nodes.pop(), placer=self.placers.pop(), faults=self.faults.pop())

    async def join(self, late: Latecomer) -> None:
        """It is there from now on, as a cluster autoscaler brings one; its agent is not started yet."""
        await self.api.create(NODES, {"metadata": {"name": late.node.name}})
        late.node.endpoint.start()
        late.node.kubelet.start()
        self.nodes.append(late.node)
        self.placers.append(late.placer)
        self.faults.append(late.faults)
        self.trace(f"{late.node.name} joins")

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What users do, and what breaks."""
        scale, centre = self.scale, self.centre_faults
        yield self.workload.run()
        yield centre.run(every=scale.centre_faults_every)
        for replica in self.replicas:
            yield centre.keep(replica)
        for one in self.faults:
            yield one.run(every=scale.faults_every)
            yield one.keep_agent()

    async def _live(self) -> None:
        await self.furnish()
        scale, centre = self.scale, self.centre_faults
        await self.live_through(list(self.parts()), seconds=scale.seconds)
        self.trace("all faults end")
        for one in self.faults:
            await one.mend()
        await centre.mend()
        idle = self.loop.spawn(self.workload.place_waiting())
        # What was sent before may land until then.
        await self.watch([idle], LANDS_WITHIN + 5.0)
        await self.workload.calm_down()
        await self.until_well(idle, within=scale.settle)
        await self._succession()
        await self.afterwards()

    async def afterwards(self) -> None:
        """What else is to be seen when all is well and nothing breaks any more."""

    async def _succession(self) -> None:
        """The leader dies once more, and another one knows what it knew, from the API server alone."""
        next(replica for replica in self.replicas if replica.reign).kill()
        await self.until_well(self.loop.spawn(self.workload.place_waiting()), within=SUCCESSION)

    def raise_broken(self) -> None:
        """What anybody has found, or somebody's own end."""
        for found in (self.books.broken, *(judge.broken for judge in self.judges)):
            if found is not None:
                raise found
        fell = [self.scheduler.fallen, *(node.fallen for node in self.nodes), *(one.fallen for one in self.replicas)]
        for fallen in fell:
            if fallen is not None:
                raise AssertionError(f"somebody fell: {fallen!r}") from fallen

    def shortcomings(self) -> list[str]:
        """What is not well yet."""
        centre = CentreEnds(replicas=self.replicas, api=self.api, books=self.books, placers=self.placers)
        found = list(centre.shortcomings())
        excused = self.books.overcommitted > 0
        for node, faults in zip(self.nodes, self.faults, strict=True):
            ends = Ends(
                node=node,
                api=self.api,
                names=self.names,
                loop=self.loop,
                deeds=self.deeds,
                wall=self.clock.wall(),
            )
            found += ends.shortcomings(failed_for_a_reason=excused or faults.no_plugin > 0)
        return found

    @property
    def starts(self) -> int:
        """How many containers have started."""
        return sum(judge.starts for judge in self.judges)
