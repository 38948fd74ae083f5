"""Aliquot's node half on a node of the test cluster: endpoint and agent as real processes, GPUs simulated."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path

from aliquot_agent.gpus.simulated import simulated_uuid
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.component import Component
from cluster.harness.node import Node
from cluster.harness.pods import BY_HAND, pod

NAMES = Names()
COMMAND = str(Path(sys.executable).with_name("aliquot"))
_numbers = itertools.count(1)

# What each container is granted: (GPU's index, percent, MiB) once for each of its GPUs.
Slices = Mapping[str, list[tuple[int, int, int]]]


class NodeHalf:
    """The two processes of one node."""

    def __init__(self, cluster: ClusterHarness, node: Node, *, gpus: str = "8xA100-80GB") -> None:
        self.cluster = cluster
        self.node = node
        self.name = node.name
        folder = cluster.folder / f"aliquot-{node.name}"
        self.environment = {
            "ALIQUOT_LOG_FORMAT": "json",
            "ALIQUOT_ENDPOINT_DOOR": str(folder / "door" / "door.sock"),
            "ALIQUOT_ENDPOINT_STATE_FILE": str(folder / "state" / "endpoint.json"),
            "ALIQUOT_AGENT_DOOR": str(folder / "door" / "door.sock"),
            "ALIQUOT_AGENT_NODE_NAME": node.name,
            "ALIQUOT_AGENT_GPUS": gpus,
            "ALIQUOT_AGENT_KUBECONFIG": str(cluster.kubeconfig("admin")),
        }

    def start(self) -> None:
        """Start both, and wait until pods can come."""
        self.endpoint = self._component("endpoint")
        self.agent = self._component("agent")
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the kubelet offers our resources and the node says what it has."""
        self.cluster.wait_for(f"slices on {self.name}", self._offers)

    def gpu(self, index: int) -> str:
        """A GPU's uuid."""
        return simulated_uuid(node=self.name, index=index)

    def grant(self, made: Json, slices: Slices) -> str:
        """The grant annotation of a created pod."""
        containers = {
            name: ContainerGrant(
                slices=tuple(
                    Slice(gpu=self.gpu(index), compute=Percent(compute), limit=Percent(compute or 100), memory=MiB(mib))
                    for index, compute, mib in parts
                )
            )
            for name, parts in slices.items()
        }
        return encode_grant(Grant(node=self.name, pod=made["metadata"]["uid"], containers=containers))

    def run(self, wanted: Json, slices: Slices) -> Json:
        """Create a pod, and bind it with a grant in one write, as the scheduler will."""
        made = self.cluster.create_pod(wanted)
        self.cluster.bind(made, self.name, {NAMES.grant: self.grant(made, slices)})
        return made

    def _component(self, command: str) -> Component:
        return self.node.start_inside(f"aliquot-{command}", [COMMAND, command], env=self.environment)

    def _offers(self) -> bool | None:
        status = self.cluster.api.get(f"/api/v1/nodes/{self.name}")["status"]["allocatable"]
        return all(status.get(name, "0") != "0" for name in (NAMES.compute, NAMES.best_effort, NAMES.memory)) or None


def asks(compute: int = 0, memory: int = 0) -> dict[str, str]:
    """A container's limits; without compute it is best effort."""
    limits = {NAMES.compute: str(compute)} if compute else {NAMES.best_effort: "1"}
    return limits | ({NAMES.memory: str(memory)} if memory else {})


def sharing_pod(namespace: str, *containers: Json, **settings: object) -> Json:
    """A pod that waits to be bound by hand."""
    return pod(f"pod-{next(_numbers)}", *containers, namespace=namespace, scheduler=BY_HAND, **settings)  # type: ignore[arg-type]
