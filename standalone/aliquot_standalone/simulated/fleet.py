"""Many simulated nodes in one process: one watch of all pods and one of all nodes, whatever their number.

A node costs two heart-beats' worth of writes in ten seconds and some idle tasks; a pod two status writes in its life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from aliquot_agent.gpus.known_models import KnownModel
from aliquot_agent.gpus.model import GpuUsage
from aliquot_agent.health.xids import Policy
from aliquot_agent.isolation.contexts import ContextOf
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.changes import Added, Change, Deleted, Modified
from aliquot_kube.client import KubeClient
from aliquot_kube.mirror import Mirror
from aliquot_kube.patches import merge_patch
from aliquot_kube.questions import Transport
from aliquot_kube.resources import NODES, PODS
from aliquot_standalone.kubelet.api_doors import ApiDoors
from aliquot_standalone.kubelet.reporter import Reporter
from aliquot_standalone.simulated.node import SimulatedNode

log = logging.getLogger(__name__)

# All nodes of one moment would beat together for ever.
_JOIN_PAUSE = 0.002
_LOOK_AGAIN = 0.02


class Fleet:
    """Simulated nodes, by name."""

    def __init__(
        self,
        *,
        nodes: Mapping[str, Sequence[KnownModel]],
        transport: Transport,
        names: Names,
        policy: Policy,
        context: ContextOf,
        clock: Clock,
        random: Random,
        apart: bool = False,
    ) -> None:
        """`context`: what a CUDA context takes of a GPU; `apart`: pods that say nothing of a play stay away."""
        self._clock = clock
        self._names = names
        self._client = KubeClient(transport=transport)
        doors = ApiDoors(node="simulated", transport=transport, clock=clock, random=random)
        self._reporter = Reporter(sink=doors, clock=clock)
        self.nodes = {
            name: SimulatedNode(
                name=name,
                models=tuple(models),
                names=names,
                policy=policy,
                context=context,
                clock=clock,
                random=random,
                transport=transport,
                doors=doors,
                reporter=self._reporter,
                apart=apart,
            )
            for name, models in nodes.items()
        }
        # What is not bound yet is no node's: two of the five writes of a pod's life are read by nobody here.
        self._pods = Mirror(
            transport=transport, clock=clock, random=random, resource=PODS, field_selector="spec.nodeName!="
        )
        self._objects = Mirror(transport=transport, clock=clock, random=random, resource=NODES)

    async def run(self) -> None:
        """Do everything until cancelled."""
        self._objects.subscribe(self._node_changed)
        self._pods.subscribe(self._pod_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._objects.run())
                tasks.create_task(self._reporter.run())
                for node in self.nodes.values():
                    await node.join()
                    for work in node.work():
                        tasks.create_task(work)
                    await self._clock.sleep(_JOIN_PAUSE)
                # Last: what runs on a node is judged by GPUs that it knows.
                tasks.create_task(self._pods.run())
        finally:
            for node in self.nodes.values():
                await node.close()

    async def until_offered(self) -> None:
        """Wait until pods can be placed on every node."""
        while not all(node.offers for node in self.nodes.values()):
            await self._clock.sleep(_LOOK_AGAIN)

    async def usage(self) -> dict[str, GpuUsage]:
        """Say what each GPU does, by uuid."""
        return {one.uuid: one for node in self.nodes.values() for one in await node.usage()}

    def break_gpu(self, node: str, index: int) -> None:
        """Let a GPU fall off the bus."""
        self.nodes[node].break_gpu(index)

    async def mend_gpu(self, node: str, index: int) -> None:
        """Let a GPU be there again, and say so as an operator does."""
        uuid = self.nodes[node].mend_gpu(index)
        # Whoever asks a GPU notices that it is there; by itself the watch asks once a minute.
        await self.nodes[node].usage()
        patch = merge_patch({"metadata": {"annotations": {self._names.clear_health: uuid}}})
        await self._client.patch(NODES, name=node, patch=patch)

    def _node_changed(self, change: Change[Node]) -> None:
        if isinstance(change, Added | Modified):
            if node := self.nodes.get(change.new.metadata.name):
                node.node_changed(change.new)
        elif isinstance(change, Deleted) and (node := self.nodes.get(change.old.metadata.name)):
            node.node_changed(None)

    def _pod_changed(self, change: Change[Pod]) -> None:
        if isinstance(change, Added | Modified):
            if node := self.nodes.get(change.new.spec.node_name):
                node.pod_changed(change.new)
        elif isinstance(change, Deleted) and (node := self.nodes.get(change.old.spec.node_name)):
            node.pod_gone(change.old)
