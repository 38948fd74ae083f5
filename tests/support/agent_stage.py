"""One node of real processes on a fake NVML: what is done to it, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Health, Inventory, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import EVENTS, NODES, PODS
from aliquot_kube.transport import HttpTransport
from support.endpoints import short_folder
from support.fake_nvml import FakeNvml
from support.gpu_contract import MODELS
from support.http_api import LONG_S
from support.one_node import OneNode, one_node

NAMES = Names()
NODE = "n1"


class Stage:
    """A node that runs, its fake driver, and a client of its API server."""

    def __init__(self, *, node: OneNode, nvml: FakeNvml, client: KubeClient, environment: Mapping[str, str]) -> None:
        self.node = node
        self.nvml = nvml
        self.client = client
        self._environment = environment

    @property
    def environment(self) -> dict[str, str]:
        """What the node's own agent was started with."""
        return self.node.environment(gpus="nvml") | dict(self._environment)

    @property
    def _port(self) -> int | None:
        served = self.logged("metrics are served")
        return int(served[-1]["ports"][0]) if served else None

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The lines of the agent's log with this message."""
        return [line for line in self.logged_as(message) if line["message"] == message]

    def logged_as(self, beginning: str) -> list[dict[str, Any]]:
        """Those whose message begins so."""
        lines = (self.node.folder / "agent.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in found if line["message"].startswith(beginning)]

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of the agent's pages; 0 while it has none, as between two agents."""
        if (port := self._port) is None:
            return 0, ""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
        except ConnectionError:
            return 0, ""
        return int(head.split()[1]) if head else 0, body.decode()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Ask until something holds; pages and objects can't be waited for."""
        async with asyncio.timeout(LONG_S):
            while not await holds():  # noqa: ASYNC110 - another process's pages tell nobody that they change
                await asyncio.sleep(0.05)

    async def metric(self, pattern: str) -> str | None:
        """The value of the sample whose name and labels match."""
        match = re.search(rf"^{pattern} (\S+)$", (await self.page("/metrics"))[1], re.MULTILINE)
        return match and match[1]

    async def inventory(self) -> Inventory:
        """What the node's object says of its GPUs."""
        node = await self.client.get(NODES, name=NODE)
        return decode_inventory(node.metadata.annotations[NAMES.inventory])

    async def health(self) -> list[Health]:
        """Of each GPU, as the node's object says."""
        return [gpu.health for gpu in (await self.inventory()).gpus]

    async def until_health(self, *health: Health) -> None:
        """Wait until the GPUs are so."""

        async def so() -> bool:
            return await self.health() == list(health)

        await self.until(so)

    async def until_told(self, pod: Pod, reason: str) -> str:
        """Wait for an Event of this pod; what it says."""
        notes: list[str] = []

        async def told() -> bool:
            events = await self.client.list(EVENTS, namespace=pod.metadata.namespace)
            notes.extend(one.note for one in events if one.reason == reason and one.regarding.uid == pod.metadata.uid)
            return bool(notes)

        await self.until(told)
        return notes[0]

    async def annotate(self, **notes: str | None) -> None:
        """Write on the node, as an operator does."""
        annotations = {NAMES.of(name.replace("_", "-")): text for name, text in notes.items()}
        await self.client.patch(NODES, name=NODE, patch=merge_patch({"metadata": {"annotations": annotations}}))

    async def bound_to(
        self, gpu: int, *, name: str = "worker", command: Sequence[str] = ("sleep", "60"), isolation: str = "observe"
    ) -> Pod:
        """A pod that is bound here with a slice of this GPU."""
        limits = {NAMES.compute: "30", NAMES.memory: "1000"}
        container = {"name": "main", "image": "none", "command": command, "resources": {"limits": limits}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container], "schedulerName": "by-hand", "terminationGracePeriodSeconds": 0},
        }
        pod = await self.node.create(body)
        part = Slice(gpu=self.nvml.gpus[gpu].uuid, compute=Percent(30), limit=Percent(30), memory=MiB(1000))
        held = ContainerGrant(slices=(part,), isolation=isolation)
        grant = Grant(node=NODE, pod=pod.metadata.uid, containers={"main": held})
        await self.node.bind(pod, {NAMES.grant: encode_grant(grant)})
        return pod

    async def pod_on(self, gpu: int, *, name: str = "worker", command: Sequence[str] = ("sleep", "60")) -> Pod:
        """A pod that runs with a slice."""
        return await self.node.until_phase(await self.bound_to(gpu, name=name, command=command), "Running")

    async def overwrite_grant(self, pod: Pod) -> None:
        """Spoil a pod's grant, as somebody with too many rights may."""
        where = {"namespace": pod.metadata.namespace, "name": pod.metadata.name}
        await self.client.patch(PODS, patch=merge_patch({"metadata": {"annotations": {NAMES.grant: "{}"}}}), **where)

    async def restart_agent(self) -> None:
        """Kill the agent as a crash would, and start the next."""
        await self.node.stop("agent", number=signal.SIGKILL)
        await self.node.start("agent", environment=self.environment)


@asynccontextmanager
async def staged(library: Path, *, variables: Mapping[str, str] | None = None) -> AsyncIterator[Stage]:
    """A node with the contract's four GPUs; `variables` are more of the environment of endpoint and agent."""
    with short_folder() as folder:
        nvml = FakeNvml(library=library, folder=folder, node=NODE)
        nvml.install(MODELS)
        environment = {
            **nvml.environment(),
            "ALIQUOT_AGENT_DRIVER_FILES": "simulated",
            "ALIQUOT_AGENT_SAMPLE": "0.2",
            "ALIQUOT_LOG_FORMAT": "json",
            **(variables or {}),
        }
        async with one_node(name=NODE, folder=folder, gpus="nvml", clock=SystemClock(), variables=environment) as node:
            credentials = Credentials(load=partial(load_configuration, kubeconfig=str(folder / "kubeconfig")))
            transport = HttpTransport(credentials=credentials, user_agent="test")
            stage = Stage(node=node, nvml=nvml, client=KubeClient(transport=transport), environment=environment)
            await node.until_offered(NAMES)
            yield stage
            await transport.close()
        assert nvml.violations() == []
