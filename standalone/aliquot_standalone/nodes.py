"""A node on the full path: a small kubelet in this process, endpoint and agent as the real processes.

What is simulated are the GPUs, where there are none, and the containers; the protocols between the four are real.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.inventory import NOT_ASKED, InventoryError, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder
from aliquot_kube.patches import merge_patch
from aliquot_kube.questions import Transport
from aliquot_kube.resources import NODES, PODS
from aliquot_standalone.centre_child import inherited
from aliquot_standalone.children import Children, Command
from aliquot_standalone.gone_slices import forget_gone_slices
from aliquot_standalone.kubelet.api_doors import ApiDoors
from aliquot_standalone.kubelet.containers import LocalProcesses
from aliquot_standalone.kubelet.groups import groups_at
from aliquot_standalone.kubelet.leaving import end_containers
from aliquot_standalone.kubelet.node import SmallKubelet
from aliquot_standalone.kubelet.settings import Folders, Settings

# It is one machine and somebody looks on: what a kubelet tells every ten seconds is told each second, and our own
# plugins are the only ones that it waits for. Pods wait longer for them than `_PATIENCE`: where no slices
# come back, `up` ends before a pod fails for it.
_KUBELET = Settings(node_status_every=1.0, settle=0.2, plugin_patience=60.0)
_LOOK_AGAIN = 0.05
_PATIENCE = 30.0
# Of this process's environment, what a person's own command would miss.
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


class NodeError(ClusterError):
    """The node did not come up."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its name, its GPUs, and where it keeps what it has."""

    name: str
    # "nvml", or what to simulate.
    gpus: str
    folder: Path
    runtime: Path
    kubeconfig: Path
    # Where the agent tells what is used, and whether it is well; 0 is any port that is free.
    metrics_port: int = 0
    # Where the agent meets whoever keeps MPS daemons, where there is somebody.
    mps: Path | None = None
    # Whether others only play pods, so that what has no command to run may go there.
    beside_simulated: bool = False

    @property
    def folders(self) -> Folders:
        """The small kubelet's."""
        return Folders(root=self.folder, runtime=self.runtime)

    def commands(self, environment: Mapping[str, str]) -> list[Command]:
        """How endpoint and agent are started."""
        settings = inherited(environment) | self._settings()
        return [
            Command(name=f"{command}-{self.name}", argv=[command], environment=settings, health=health)
            for command, health in (("endpoint", 0), ("agent", self.metrics_port))
        ]

    def _settings(self) -> dict[str, str]:
        kubelet, door = self.folders, str(self.runtime / "door" / "door.sock")
        return {
            "ALIQUOT_ENDPOINT_PLUGIN_FOLDER": str(kubelet.device_plugins),
            "ALIQUOT_ENDPOINT_STATE_FILE": str(self.folder / "endpoint.json"),
            "ALIQUOT_ENDPOINT_DOOR": door,
            "ALIQUOT_AGENT_DOOR": door,
            "ALIQUOT_AGENT_NODE_NAME": self.name,
            "ALIQUOT_AGENT_GPUS": self.gpus,
            "ALIQUOT_AGENT_KUBECONFIG": str(self.kubeconfig),
            "ALIQUOT_AGENT_POD_RESOURCES": str(kubelet.pod_resources_socket),
            "ALIQUOT_AGENT_KUBELET_RECORD": str(kubelet.checkpoint),
            "ALIQUOT_AGENT_CDI_FOLDER": str(kubelet.cdi),
            "ALIQUOT_AGENT_MOUNTS": "false",
            "ALIQUOT_AGENT_HTTP_PORT": str(self.metrics_port),
            "ALIQUOT_HEALTH_MEMORY": str(self.folder / "health.json"),
            **({"ALIQUOT_AGENT_MPS_FOLDER": str(self.mps)} if self.mps else {}),
        }


class FullNode:
    """A running node."""

    def __init__(
        self,
        *,
        plan: NodePlan,
        names: Names,
        transport: Transport,
        children: Children,
        clock: Clock,
        random: Random,
    ) -> None:
        self.plan = plan
        self._names = names
        self._client = KubeClient(transport=transport)
        self._children = children
        self._clock = clock
        # Whoever runs the kubelet runs this beside it.
        self.events = EventRecorder(
            client=self._client,
            clock=clock,
            random=random,
            controller="kubelet",
            instance=plan.name,
            ledger=EventLedger(),
        )
        self._doors = ApiDoors(node=plan.name, transport=transport, clock=clock, random=random)
        plan.folder.mkdir(parents=True, exist_ok=True)
        self._groups = groups_at(plan.folders.groups_record, name=plan.folders.place)
        self.kubelet = SmallKubelet(
            name=plan.name,
            folders=plan.folders,
            source=self._doors,
            sink=self._doors,
            clock=clock,
            settings=_KUBELET,
            runtime=LocalProcesses(groups=self._groups),
            base_env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            warn=self._warn,
            taint=names.real if plan.beside_simulated else "",
        )

    def _warn(self, pod: Pod, why: str) -> None:
        """Say it where `kubectl describe` shows it: in the status only the reason's one word is seen there."""
        # The real kubelet's word for it, by which people filter.
        self.events.tell(regarding=pod.reference, reason="Failed", action="Starting", note=why, warning=True)

    async def start(self) -> None:
        """Start endpoint and agent once the kubelet, whose `run` must be under way, has its sockets."""
        await self.kubelet.serving.wait()
        await self._forget_trouble()
        bound = await self._client.list(PODS, field_selector=f"spec.nodeName={self.plan.name}")
        forget_gone_slices(
            self.plan.folders.cdi,
            names=self._names,
            place=self.plan.folders.place,
            groups=self._groups,
            pods={pod.metadata.uid for pod in bound},
        )
        for command in self.plan.commands(os.environ):
            await self._children.start(command)

    async def until_offered(self) -> None:
        """Wait until the node offers slices."""
        deadline = self._clock.monotonic() + _PATIENCE
        while True:
            node = await self._doors.read_node(self.plan.name) or Node()
            if all(node.status.allocatable.get(one, "0") != "0" for one in (self._names.compute, self._names.memory)):
                return
            if (trouble := trouble_of(node, names=self._names)) or self._clock.monotonic() > deadline:
                log = self._children.log_of(f"agent-{self.plan.name}")
                what = f"no slices are offered{trouble and f': {trouble}'}"
                raise NodeError(what, where=self.plan.name, remedy=f"its agent's log is {log}")
            await self._clock.sleep(_LOOK_AGAIN)

    async def _forget_trouble(self) -> None:
        """Take away what an earlier run's agent said was in the way: this one's is to say it for itself."""
        node = await self._doors.read_node(self.plan.name)
        if node is not None and trouble_of(node, names=self._names):
            patch = merge_patch({"metadata": {"annotations": {self._names.inventory: None}}})
            await self._client.patch(NODES, name=self.plan.name, patch=patch)

    async def end_containers(self, *, grace: float) -> None:
        """End the processes of all pods; the kubelet runs no more, so the next one learns how they ended."""
        kubelet = self.kubelet
        await end_containers(
            place=self.plan.folders.place,
            memories=kubelet.memories,
            runtime=kubelet.runtime,
            clock=self._clock,
            grace=grace,
            groups=self._groups,
        )


def trouble_of(node: Node, *, names: Names) -> str:
    """Why none of its GPUs can be given, where its agent has found that out; it asks again, which a person need not."""
    try:
        trouble = decode_inventory(node.metadata.annotations.get(names.inventory, "{}")).problem
    except InventoryError:
        return ""
    return "" if trouble == NOT_ASKED else trouble
