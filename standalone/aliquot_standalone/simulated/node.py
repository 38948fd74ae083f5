"""One simulated node: the agent's own parts on GPUs that are not there, and a kubelet's part without its sockets.

GPUs are watched and judged, and the node's object and heart-beat written, by the very code that does it on a real node.
What a kubelet would add is the node's object, its status, and the pods (`households`).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from aliquot_agent.gpus.known_models import KnownModel
from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.gpus.simulated import SimulatedDriver
from aliquot_agent.health.gpu_watch import GpuWatch
from aliquot_agent.health.health_memory import HealthFile
from aliquot_agent.health.marks import read_marks
from aliquot_agent.health.xids import Policy
from aliquot_agent.isolation.contexts import ContextOf
from aliquot_agent.publishing.node_publisher import NodePublisher
from aliquot_agent.publishing.signs_of_life import SignsOfLife
from aliquot_agent.signal import Signal
from aliquot_agent.starting.device_ids import device_tables
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.door import KubeletSeen
from aliquot_core.errors import AliquotError
from aliquot_core.held_on_sick import NOTHING_HELD, Held, held_on_sick
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.questions import Transport
from aliquot_standalone.kubelet.api_doors import ApiDoors
from aliquot_standalone.kubelet.devices import Totals
from aliquot_standalone.kubelet.nodestatus import node_object, node_status
from aliquot_standalone.kubelet.reporter import Reporter
from aliquot_standalone.simulated.admitting import Gate
from aliquot_standalone.simulated.households import Household
from aliquot_standalone.simulated.loads import SimNames
from aliquot_standalone.simulated.owners import Owner

log = logging.getLogger(__name__)

# As a server with such GPUs has, for each of them.
_CORES, _GIBIBYTES = 12, 128
_MOST_PODS = 250
_SLOTS = 32
_HEARTBEAT = 5.0
_LOOK_AGAIN = 30.0
# "Fallen off the bus": what the driver says of a GPU that is no longer there.
FALLEN_OFF = 79


class SimulatedNode:
    """One node and what happens on it."""

    def __init__(
        self,
        *,
        name: str,
        models: tuple[KnownModel, ...],
        names: Names,
        policy: Policy,
        context: ContextOf,
        clock: Clock,
        random: Random,
        transport: Transport,
        doors: ApiDoors,
        reporter: Reporter,
        apart: bool = False,
    ) -> None:
        """`context`: what a CUDA context takes of a GPU; `apart`: pods that say nothing of a play stay away."""
        self.name = name
        self._apart = apart
        self._names = names
        self._clock = clock
        self._doors = doors
        self._node: Node | None = None
        self._since = clock.wall()
        self._written: dict[str, Any] = {}
        self._pods: dict[str, Pod] = {}
        self._counted: tuple[Inventory, Mapping[str, Held], Totals] | None = None
        self._changed = Signal()
        self._listening = Signal()
        self._own = _own(len(models))
        self._driver = SimulatedDriver(node=name, models=models, clock=clock)
        self._gpus = self._watch(policy, context=context)
        client = KubeClient(transport=transport)
        self._publisher = self._publishing(client, random=random)
        self._signs = self._signing(client, transport=transport, random=random)
        self._household = self._housing(reporter)

    # --- what it is made of ------------------------------------------------------------------------------------------
    def _watch(self, policy: Policy, *, context: ContextOf) -> GpuWatch:
        return GpuWatch(
            driver=self._driver,
            clock=self._clock,
            changed=self._changed,
            obstacle=str,
            policy=policy,
            # GPUs that are made anew at each start have nothing to be remembered of.
            memory=HealthFile(""),
            beat=lambda: None,
            context=context,
        )

    def _publishing(self, client: KubeClient, *, random: Random) -> NodePublisher:
        return NodePublisher(
            node=self.name,
            names=self._names,
            client=client,
            clock=self._clock,
            random=random,
            seen=lambda: self._node,
            inventory=lambda: self._gpus.inventory,
            held=self._held,
            changed=self._changed,
        )

    def _signing(self, client: KubeClient, *, transport: Transport, random: Random) -> SignsOfLife:
        return SignsOfLife(
            node=self.name,
            names=self._names,
            clock=self._clock,
            random=random,
            holder=f"{self.name}-simulated",
            interval=_HEARTBEAT,
            client=client,
            beat_transport=transport,
            kubelet=self._kubelet,
            changed=self._listening,
        )

    def _housing(self, reporter: Reporter) -> Household:
        return Household(
            clock=self._clock,
            gate=Gate(node=self.name, names=self._names, inventory=lambda: self._gpus.inventory),
            names=SimNames(self._names),
            driver=self._driver,
            allocatable=lambda: self._written.get("allocatable", {}),
            reporter=reporter,
        )

    # --- what the fleet tells ----------------------------------------------------------------------------------------
    def node_changed(self, node: Node | None) -> None:
        """Take in the node's object as it is now."""
        self._node = node
        if node is not None:
            self._gpus.mark(read_marks(node, names=self._names))
        self._changed.notify()

    def pod_changed(self, pod: Pod) -> None:
        """Take in a pod that is bound here."""
        self._pods[pod.metadata.uid] = pod
        self._household.changed(pod)
        self._count_anew()

    def pod_gone(self, pod: Pod) -> None:
        """A pod's object is gone."""
        self._pods.pop(pod.metadata.uid, None)
        self._household.gone(pod)
        self._count_anew()

    def _count_anew(self) -> None:
        """What pods hold counts only where a GPU is sick."""
        if self._held(self._gpus.inventory) != (self._counted[1] if self._counted else NOTHING_HELD):
            self._changed.notify()

    def _held(self, inventory: Inventory) -> Mapping[str, Held]:
        return held_on_sick(self._pods.values(), inventory=inventory, names=self._names)

    @property
    def offers(self) -> bool:
        """Whether pods can be placed here."""
        return bool(self._written)

    # --- what is done to it ------------------------------------------------------------------------------------------
    def break_gpu(self, index: int) -> None:
        """Let a GPU fall off the bus, with whatever runs on it and on its instances."""
        self._driver.raise_xid(gpu=index, number=FALLEN_OFF)
        self._driver.lose(gpu=index)
        for uuid in self._driver.uuids_on(gpu=index):
            self._household.break_on(uuid)

    def mend_gpu(self, index: int) -> str:
        """Let a GPU be there again; gives its uuid, for which somebody must still say that it was looked after."""
        self._driver.recover(gpu=index)
        return self._driver.uuids_on(gpu=index)[0]

    async def usage(self) -> tuple[GpuUsage, ...]:
        """Say what each GPU does."""
        return await self._driver.usage()

    def owners(self) -> dict[int, Owner]:
        """Whose each process is, by its number."""
        return self._household.owners()

    # --- what it does ------------------------------------------------------------------------------------------------
    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What is to run."""
        return self._gpus.run(), self._publisher.run(), self._tell_node(), *self._signs.work()

    async def close(self) -> None:
        """End what is played here."""
        await self._household.close()

    async def join(self) -> None:
        """Create the node's object, unless it is there."""
        await self._doors.create_node(
            node_object(self.name, {self._names.simulated: "true"}, taint=self._names.simulated if self._apart else "")
        )

    def _kubelet(self) -> KubeletSeen | None:
        """A kubelet listens as soon as the node offers anything."""
        if not self._written:
            return None
        return KubeletSeen(listening=[self._names.compute, self._names.best_effort], registrations=1)

    async def _tell_node(self) -> None:
        """Keep the node's status right: a kubelet's part, but written only when something changes."""
        while True:
            seen = self._changed.count
            try:
                await self._tell_once()
            except AliquotError as error:
                log.warning("node status not written", extra={"node": self.name, "why": str(error)})
            await self._changed.wait(clock=self._clock, at_most=_LOOK_AGAIN, since=seen)

    async def _tell_once(self) -> None:
        if self._node is None or not self._gpus.inventory.gpus:
            return
        status = node_status(
            self._node, self._totals(), own=self._own, ready_since=self._since, now=self._since, reset=False
        )
        if status == self._written:
            return
        await self._doors.write_node_status(self.name, status)
        first, self._written = not self._written, status
        if first:
            self._listening.notify()

    def _totals(self) -> Totals:
        inventory = self._gpus.inventory
        held = self._held(inventory)
        if self._counted is None or self._counted[0] is not inventory or self._counted[1] != held:
            # A thousand device ids for each node: counted when the GPUs change, not at each look.
            self._counted = inventory, held, self._count(inventory, held)
        return self._counted[2]

    def _count(self, inventory: Inventory, held: Mapping[str, Held]) -> Totals:
        tables = device_tables(inventory, names=self._names, best_effort_slots=_SLOTS, held=held)
        counts: Mapping[str, tuple[int, int]] = {
            name: (len(devices), sum(one.healthy for one in devices)) for name, devices in tables.items()
        }
        return Totals(
            capacity={name: every for name, (every, _) in counts.items()},
            allocatable={name: healthy for name, (_, healthy) in counts.items()},
            removed=frozenset(),
        )


def _own(gpus: int) -> dict[str, str]:
    """What the node has besides."""
    return {"cpu": str(_CORES * gpus), "memory": f"{_GIBIBYTES * gpus}Gi", "pods": str(_MOST_PODS)}
