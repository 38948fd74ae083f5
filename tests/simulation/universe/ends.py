"""What must have come about a while after the last fault: liveness, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from aliquot_core.errors import AliquotError
from aliquot_core.held_on_sick import held_on_sick
from aliquot_core.inventory import Health, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_deviceplugin.cdi.store import SpecStore
from aliquot_standalone.kubelet.lifecycle import Exited, back_off
from simulation.universe.api import ApiServer
from simulation.universe.disk import DiskOf
from simulation.universe.judge import Deed
from simulation.universe.life import Life
from simulation.universe.loop import VirtualLoop
from simulation.universe.node import SimNode
from simulation.universe.pod_worker import SETTINGS


class Ends:
    """Says what is not as it must be by now."""

    def __init__(
        self, *, node: SimNode, api: ApiServer, names: Names, loop: VirtualLoop, deeds: dict[str, Deed], wall: float
    ) -> None:
        self._node = node
        self._api = api
        self._names = names
        self._loop = loop
        self._deeds = deeds
        self._wall = wall

    def shortcomings(self, *, failed_for_a_reason: bool) -> Iterator[str]:
        """Each in a sentence; none when all is well."""
        yield from self._pods(failed_for_a_reason=failed_for_a_reason)
        yield from self._node_object()
        yield from self._lease()
        yield from self._specs()
        yield from self._agent()

    def _pods(self, *, failed_for_a_reason: bool) -> Iterator[str]:
        living = {(one.uid, one.container) for one in self._node.runtime.running.values()}
        for pod in self._api.pods(self._node.name):
            deed = self._deeds[pod.metadata.uid]
            if deed.bad or pod.metadata.deletion_timestamp:
                continue
            if refused := self._node.kubelet.failed_at_admission.get(pod.metadata.uid):
                if not failed_for_a_reason and pod.metadata.uid not in self._node.kubelet.crowded_out:
                    yield f"{pod.key} failed at admission: {refused}"
                continue
            runs = any((pod.metadata.uid, one.name) in living for one in pod.spec.containers)
            if not (runs or pod.ended or self._backs_off(pod)):
                yield f"{pod.key} ({pod.status.phase}) is well granted and does not run"

    def _backs_off(self, pod: Pod) -> bool:
        """Whether it has run so often that the kubelet starts it again only after a while: minutes, at last."""
        _, lives = self._node.kubelet.lives.get(pod.metadata.uid, (pod, {}))
        return any(
            isinstance(life.state, Exited) and self._wall < life.state.until + back_off(life.ends, SETTINGS)
            for life in lives.values()
        )

    def _node_object(self) -> Iterator[str]:
        node = self._api.node(self._node.name)
        if node is None:
            yield "the node's object is gone"
            return
        try:
            inventory = decode_inventory(node.metadata.annotations.get(self._names.inventory, ""))
        except AliquotError as error:
            yield f"the inventory can't be read: {error}"
            return
        hardware = self._node.hardware
        if sorted(gpu.uuid for gpu in inventory.gpus) != sorted(hardware.uuids):
            yield f"the inventory has {len(inventory.gpus)} GPUs, not the node's {len(hardware.uuids)}"
        if sick := [gpu.reason for gpu in inventory.gpus if gpu.health is not Health.HEALTHY]:
            yield f"{len(sick)} GPUs are said to be not well: {sick[0]}"
        # Whoever has a forged grant on a GPU that is not there counts on for kube-scheduler, so the others keep theirs.
        elsewhere = held_on_sick(self._api.pods(self._node.name), inventory=inventory, names=self._names)
        memory = str(hardware.memory * len(hardware.uuids) + sum(held.memory for held in elsewhere.values()))
        if node.status.capacity.get(self._names.memory) != memory:
            yield f"the node says {node.status.capacity.get(self._names.memory)} MiB instead of {memory}"
        if node.metadata.labels.get(self._names.of("gpu.count")) != str(len(hardware.uuids)):
            yield "the label with the count of GPUs is wrong"

    def _lease(self) -> Iterator[str]:
        lease = self._api.lease(self._names.namespace, self._names.lease(self._node.name))
        if lease is None or lease.spec.renew_time is None:
            yield "the node has no lease"
            return
        age = self._wall - datetime.fromisoformat(lease.spec.renew_time).timestamp()
        if age > 2 * self._node.settings.heartbeat:
            yield f"the lease is {age:.0f} s old"
        if (state := lease.metadata.annotations.get(self._names.state)) != "ready":
            yield f"the node says it is {state}"

    def _specs(self) -> Iterator[str]:
        disk = DiskOf(self._node.disk, Life(self._loop))
        needed = {pod.metadata.uid for pod in self._api.pods(self._node.name)}
        stored_specs = SpecStore(names=self._names, folder=disk).listed()
        kept = {(stored.owner.pod_uid, stored.owner.container) for stored in stored_specs if stored.owner}
        for one in self._node.runtime.running.values():
            if one.parts and (one.uid, one.container) not in kept:
                yield f"{self._deeds[one.uid].pod} container {one.container} runs and its spec is gone"
        for stored in stored_specs:
            if stored.owner is None:
                yield f"{stored.file} stays in the folder: {stored.problem}"
            elif stored.owner.pod_uid not in needed:
                yield f"the spec of {stored.owner} stays in the folder though its pod is gone"

    def _agent(self) -> Iterator[str]:
        agent = self._node.agent
        for life in self._node.undead():
            yield f"an agent that was killed goes on: {[task.get_name() for task in life.tasks]}"
        if agent is None or self._node.life is None or not self._node.life.alive:
            yield "no agent runs"
            return
        here: dict[str, Pod] = {pod.metadata.uid: pod for pod in self._api.pods(self._node.name)}
        if agent.pods.by_uid.keys() != here.keys():
            yield f"the agent knows {len(agent.pods.by_uid)} pods of {len(here)}"
        if ghosts := agent.starter._slices._standing.keys() - here.keys():
            yield f"the agent still counts pods that are gone: {sorted(ghosts)}"
