"""One node without a centre: API server and small kubelet here, endpoint and agent as the real processes.

What is simulated are the GPUs and the containers; the protocols between the four are the real ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.names import NAMESPACE, Names
from aliquot_core.objects import Node, Pod
from aliquot_kube.client import KubeClient
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.resources import PODS
from aliquot_kube.transport import HttpTransport, Question
from aliquot_standalone.apiserver.embedded import kubeconfig, serving
from aliquot_standalone.children import DIES_WITH_PARENT, PARENT
from aliquot_standalone.kubelet.api_doors import ApiDoors
from aliquot_standalone.kubelet.node import SmallKubelet
from aliquot_standalone.kubelet.nodestatus import node_object
from aliquot_standalone.kubelet.settings import Folders, Settings
from aliquot_standalone.nodes import NodePlan
from support.http_api import LONG_S

# How often something is looked at again that nobody tells us of.
LOOK_AGAIN = 0.05


class OneNodeError(ClusterError):
    """The node did not come up."""


class OneNode:
    """A running node, and what tests do with it."""

    def __init__(
        self, *, name: str, folder: Path, transport: HttpTransport, doors: ApiDoors, url: str, clock: Clock
    ) -> None:
        self.name = name
        self.folder = folder
        self.url = url
        self.folders = Folders(root=folder / "kubelet")
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._transport = transport
        self._client = KubeClient(transport=transport)
        self.doors = doors
        self._clock = clock

    @classmethod
    def at(cls, *, name: str, folder: Path, url: str, clock: Clock, random: Random) -> OneNode:
        """A node below this folder, whose kubeconfig lies there, and its connection to the API server."""
        credentials = Credentials(load=partial(load_configuration, kubeconfig=str(folder / "kubeconfig")))
        transport = HttpTransport(credentials=credentials, user_agent="aliquot-up")
        doors = ApiDoors(node=name, transport=transport, clock=clock, random=random)
        return cls(name=name, folder=folder, transport=transport, doors=doors, url=url, clock=clock)

    async def close(self) -> None:
        """Hang up."""
        await self._transport.close()

    async def create_namespace(self, name: str) -> None:
        """Create a namespace, such as that of our leases."""
        await self._create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def create_node(self) -> None:
        """Create the node's object, where no kubelet does."""
        await self.doors.create_node(node_object(self.name, {}))

    async def create(self, pod: Mapping[str, object]) -> Pod:
        """Create a pod."""
        return msgspec.json.decode(await self._create(PODS.collection("default"), pod), type=Pod)

    async def _create(self, path: str, manifest: Mapping[str, object]) -> bytes:
        """Manifests are written as users write them; our structs hold only what we read."""
        body = msgspec.json.encode(manifest)
        question = Question(method="POST", path=path, body=body, content_type="application/json")
        return (await self._transport.request(question)).body

    async def bind(self, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Bind a pod to this node; its grant travels in the same write."""
        meta = pod.metadata
        await self._client.bind(
            namespace=meta.namespace, name=meta.name, node=self.name, uid=meta.uid, annotations=annotations
        )

    async def pod(self, pod: Pod) -> Pod:
        """The pod as it is now."""
        return await self._client.get(PODS, namespace=pod.metadata.namespace, name=pod.metadata.name)

    async def node(self) -> Node | None:
        """The node as it is now, once the kubelet has made it."""
        return await self.doors.read_node(self.name)

    async def until_phase(self, pod: Pod, *phases: str, seconds: float = LONG_S) -> Pod:
        """Wait until the pod is in one of these phases."""
        deadline = self._clock.monotonic() + seconds
        while (now := await self.pod(pod)).status.phase not in phases:
            if self._clock.monotonic() > deadline:
                raise OneNodeError(f"{pod.key} is {now.status.phase} after {seconds:g} s", where=self.name)
            await self._clock.sleep(LOOK_AGAIN)
        return now

    async def until_offered(self, names: Names, *, seconds: float = LONG_S) -> Node:
        """Wait until the node offers slices."""
        deadline = self._clock.monotonic() + seconds
        wanted = (names.compute, names.memory)
        while True:
            node = await self.node()
            if node and all(node.status.allocatable.get(name, "0") != "0" for name in wanted):
                return node
            if self._clock.monotonic() > deadline:
                raise OneNodeError("no slices are offered", where=self.name, remedy=f"read the logs in {self.folder}")
            await self._clock.sleep(LOOK_AGAIN)

    async def clear(self, *, seconds: float = LONG_S) -> None:
        """Delete all pods and wait until they have ended; what outlives its grace is killed by the kubelet."""
        deadline = self._clock.monotonic() + seconds
        while pods := await self._client.list(PODS):
            for pod in pods:
                if pod.metadata.deletion_timestamp is None:
                    await self._client.delete(PODS, namespace=pod.metadata.namespace, name=pod.metadata.name)
            if self._clock.monotonic() > deadline:
                raise OneNodeError(f"{len(pods)} pods have not ended after {seconds:g} s", where=self.name)
            await self._clock.sleep(LOOK_AGAIN)

    def output(self, pod: Pod, container: str) -> str:
        """What a container has printed at its first start."""
        file = self.folders.log_file(pod, container, 0)
        return file.read_text(errors="replace").strip() if file.exists() else ""

    async def start(self, command: str, *, environment: Mapping[str, str]) -> None:
        """Start one of our processes; its log goes to a file in the folder."""
        with (self.folder / f"{command}.log").open("ab") as log:
            self.processes[command] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                DIES_WITH_PARENT,
                command,
                stdout=log,
                stderr=log,
                env={**environment, PARENT: str(os.getpid())},
            )

    async def stop(self, command: str, *, number: signal.Signals = signal.SIGTERM) -> None:
        """End one of our processes and wait for it."""
        process = self.processes.pop(command, None)
        if process is None or process.returncode is not None:
            return
        process.send_signal(number)
        try:
            async with asyncio.timeout(LONG_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def environment(self, *, gpus: str) -> dict[str, str]:
        """The settings of endpoint and agent on this node."""
        plan = NodePlan(
            name=self.name,
            gpus=gpus,
            folder=self.folders.root,
            runtime=self.folders.root,
            kubeconfig=self.folder / "kubeconfig",
        )
        return dict(plan.commands(os.environ)[0].environment)


@asynccontextmanager
async def one_node(
    *, name: str, folder: Path, gpus: str, clock: Clock, port: int = 0, variables: Mapping[str, str] | None = None
) -> AsyncIterator[OneNode]:
    """Run the node for as long as the block runs; everything it started is ended with it.

    `variables` are more of the environment of endpoint and agent.
    """
    luck = random.Random().random
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(clock=clock, port=port))
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig(server.url)))
        node = OneNode.at(name=name, folder=folder, url=server.url, clock=clock, random=luck)
        stack.push_async_callback(node.close)
        await node.create_namespace(NAMESPACE)
        kubelet = SmallKubelet(
            name=name,
            folders=node.folders,
            source=node.doors,
            sink=node.doors,
            clock=clock,
            # A test waits for it: what the kubelet tells every ten seconds is told each second.
            settings=Settings(node_status_every=1.0, settle=0.2),
        )
        running = asyncio.ensure_future(kubelet.run())
        stack.push_async_callback(_end, running)
        await _serving(kubelet, running)
        for command in ("endpoint", "agent"):
            stack.push_async_callback(node.stop, command)
            await node.start(command, environment=node.environment(gpus=gpus) | dict(variables or {}))
        # Last in, first out: the pods end while there is still a kubelet to end them.
        stack.push_async_callback(node.clear)
        yield node


async def _serving(kubelet: SmallKubelet, running: asyncio.Future[None]) -> None:
    """Wait until the kubelet has its sockets; what keeps it from that is raised."""
    serving: asyncio.Future[Any] = asyncio.ensure_future(kubelet.serving.wait())
    await asyncio.wait([serving, running], return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    if running.done():
        running.result()


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
