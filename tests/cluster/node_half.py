"""Aliquot's node half on a node of the test cluster: endpoint and agent as real processes, GPUs simulated."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aliquot_agent.gpus.simulated import simulated_uuid
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from aliquot_deviceplugin.checkpoint import FILE, decode_checkpoint
from cluster.harness.api import Json
from cluster.harness.cluster import ClusterHarness
from cluster.harness.component import Component
from cluster.harness.node import Node
from cluster.harness.pods import BY_HAND, pod, shell

NAMES = Names()
COMMAND = str(Path(sys.executable).with_name("aliquot"))
_numbers = itertools.count(1)

# What a container finds of its slice, and what its pod says when it prints that.
SHOW = 'echo "$ALIQUOT_GPUS $ALIQUOT_COMPUTE $ALIQUOT_MEMORY $NVIDIA_VISIBLE_DEVICES"'

# What each container is granted: (GPU's index, percent, MiB) once for each of its GPUs.
Slices = Mapping[str, list[tuple[int, int, int]]]


class NodeHalf:
    """The two processes of one node."""

    def __init__(self, cluster: ClusterHarness, node: Node, *, gpus: str = "8xA100-80GB", **environment: str) -> None:
        self.cluster = cluster
        self.node = node
        self.name = node.name
        folder = cluster.folder / f"aliquot-{node.name}-{next(_numbers)}"
        self._door = folder / "door" / "door.sock"
        self.environment = {
            "ALIQUOT_LOG_FORMAT": "json",
            "ALIQUOT_ENDPOINT_DOOR": str(self._door),
            "ALIQUOT_ENDPOINT_STATE_FILE": str(folder / "state" / "endpoint.json"),
            "ALIQUOT_AGENT_DOOR": str(self._door),
            "ALIQUOT_AGENT_NODE_NAME": node.name,
            "ALIQUOT_AGENT_GPUS": gpus,
            "ALIQUOT_AGENT_HTTP_PORT": "0",
            "ALIQUOT_HEALTH_MEMORY": str(folder / "health.json"),
            "ALIQUOT_AGENT_KUBECONFIG": str(cluster.kubeconfig("admin")),
            **environment,
        }

    def start(self) -> None:
        """Start both, and wait until pods can come."""
        self.start_endpoint()
        self.start_agent()
        self.wait_ready()

    def start_endpoint(self) -> None:
        """Start the process that the kubelet sees, and wait as its service does: its door is opened last."""
        self._listened_before = self._listened()
        self._door.unlink(missing_ok=True)  # of one that was killed
        self.endpoint = self._component("endpoint", ready=self._door.is_socket)

    def start_agent(self) -> None:
        """Start the process that knows the GPUs; its lease lies in a namespace that an installation brings."""
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMES.namespace}})
        self.agent = self._component("agent")

    def stop(self) -> None:
        """Stop both, as at the end of a node's life."""
        self.agent.stop()
        self.endpoint.stop()

    def lease(self) -> Json:
        """The node's heart-beat, as the API server has it."""
        return self.cluster.api.get(
            f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases/{NAMES.lease(self.name)}"
        )

    def wait_ready(self) -> None:
        """Wait until the kubelet offers our resources and the node says what it has."""
        self.wait_registered()
        self.cluster.wait_for(f"slices on {self.name}", self._offers)

    def wait_registered(self) -> None:
        """Wait until the kubelet listens to this endpoint: what the node says may be of the one before."""
        wanted = self._listened_before + 2
        self.cluster.wait_for("compute and best effort to be registered", lambda: self._listened() >= wanted)

    def logged(self, command: str, **fields: object) -> list[Json]:
        """The lines that a process has logged with these fields."""
        log = self.node.folder / "logs" / f"aliquot-{command}.log"
        text = log.read_text() if log.exists() else ""
        lines = [
            json.loads(line) for line in text.splitlines(keepends=True) if line.startswith("{") and line.endswith("}\n")
        ]
        return [line for line in lines if all(line.get(name) == value for name, value in fields.items())]

    def held_ids(self, made: Json) -> dict[str, frozenset[str]]:
        """The device ids that the kubelet has on record for each container of a pod."""
        recorded = decode_checkpoint(self.node.path(FILE).read_bytes())
        return {entry.container: entry.ids for entry in recorded if entry.uid == made["metadata"]["uid"]}

    def told(self, namespace: str, uid: str) -> str:
        """What Events say of a pod, by its uid."""
        events = self.cluster.api.items(f"/api/v1/namespaces/{namespace}/events")
        return " ".join(event["message"] for event in events if event["involvedObject"].get("uid") == uid)

    def told_of(self, made: Json) -> str:
        """What Events say of a pod that was created."""
        return self.told(made["metadata"]["namespace"], made["metadata"]["uid"])

    def gpu(self, index: int) -> str:
        """A GPU's uuid."""
        return simulated_uuid(node=self.name, index=index)

    def grant(self, made: Json, slices: Slices, *, isolation: str = "observe") -> str:
        """The grant annotation of a created pod."""
        containers = {
            name: ContainerGrant(
                slices=tuple(
                    Slice(gpu=self.gpu(index), compute=Percent(compute), limit=Percent(compute or 100), memory=MiB(mib))
                    for index, compute, mib in parts
                ),
                isolation=isolation,
            )
            for name, parts in slices.items()
        }
        return encode_grant(Grant(node=self.name, pod=made["metadata"]["uid"], containers=containers))

    def run(self, wanted: Json, slices: Slices, *, isolation: str = "observe") -> Json:
        """Create a pod, and bind it."""
        made = self.cluster.create_pod(wanted)
        self.bind(made, slices, isolation=isolation)
        return made

    def bind(self, made: Json, slices: Slices, *, isolation: str = "observe") -> None:
        """Bind a created pod with a grant in one write, as the scheduler will."""
        self.cluster.bind(made, self.name, {NAMES.grant: self.grant(made, slices, isolation=isolation)})

    def _component(self, command: str, *, ready: Callable[[], bool] = lambda: True) -> Component:
        return self.node.start_inside(f"aliquot-{command}", [COMMAND, command], env=self.environment, ready=ready)

    def _listened(self) -> int:
        return len(self.logged("endpoint", message="listened to"))

    def _offers(self) -> bool | None:
        status = self.cluster.api.get(f"/api/v1/nodes/{self.name}")["status"]["allocatable"]
        return all(status.get(name, "0") != "0" for name in (NAMES.compute, NAMES.best_effort, NAMES.memory)) or None


def asks(compute: int = 0, memory: int = 0) -> dict[str, str]:
    """A container's limits; without compute it is best effort."""
    limits = {NAMES.compute: str(compute)} if compute else {NAMES.best_effort: "1"}
    return limits | ({NAMES.memory: str(memory)} if memory else {})


def shows(**settings: object) -> Json:
    """A container that prints its slice; the settings are those of `container`."""
    return shell(SHOW, **settings)


def sharing_pod(namespace: str, *containers: Json, **settings: Any) -> Json:
    """A pod that waits to be bound by hand."""
    return pod(f"pod-{next(_numbers)}", *containers, namespace=namespace, scheduler=BY_HAND, **settings)
