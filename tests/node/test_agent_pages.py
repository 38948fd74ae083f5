"""What the agent's process says of itself, and where a sick GPU shows: real processes on a fake NVML."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Health, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import EVENTS, NODES
from aliquot_kube.transport import HttpTransport
from aliquot_standalone.one_node import OneNode, one_node
from support.endpoints import short_folder
from support.fake_nvml import FakeNvml
from support.gpu_contract import MODELS

pytestmark = [pytest.mark.native, pytest.mark.timeout(90)]

NAMES = Names()
NODE = "n1"


class Stage:
    """A node that runs, its fake driver, and a client of its API server."""

    def __init__(self, *, node: OneNode, nvml: FakeNvml, client: KubeClient) -> None:
        self.node = node
        self.nvml = nvml
        self.client = client

    @property
    def _port(self) -> int | None:
        for line in (self.node.folder / "agent.log").read_text().splitlines():
            if '"metrics are served"' in line:
                return int(json.loads(line)["ports"][0])
        return None

    async def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of the agent's pages; 0 while it has none."""
        if (port := self._port) is None:
            return 0, ""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body.decode()

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Ask until something holds; pages and objects can't be waited for."""
        async with asyncio.timeout(30):
            while not await holds():  # noqa: ASYNC110 - another process's pages tell nobody that they change
                await asyncio.sleep(0.05)

    async def metric(self, pattern: str) -> str | None:
        """The value of the sample whose name and labels match."""
        match = re.search(rf"^{pattern} (\S+)$", (await self.page("/metrics"))[1], re.MULTILINE)
        return match and match[1]

    async def health(self) -> list[Health]:
        """Of each GPU, as the node's object says."""
        node = await self.client.get(NODES, name=NODE)
        return [gpu.health for gpu in decode_inventory(node.metadata.annotations[NAMES.inventory]).gpus]

    async def pod_on(self, gpu: int) -> Pod:
        """A pod that runs with a slice."""
        limits = {NAMES.compute: "30", NAMES.memory: "1000"}
        container = {"name": "main", "image": "none", "command": ["sleep", "60"], "resources": {"limits": limits}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "worker", "namespace": "default"},
            "spec": {"containers": [container], "schedulerName": "by-hand", "terminationGracePeriodSeconds": 0},
        }
        pod = await self.node.create(body)
        part = Slice(gpu=self.nvml.gpus[gpu].uuid, compute=Percent(30), limit=Percent(30), memory=MiB(1000))
        grant = Grant(node=NODE, pod=pod.metadata.uid, containers={"main": ContainerGrant(slices=(part,))})
        await self.node.bind(pod, {NAMES.grant: encode_grant(grant)})
        return await self.node.until_phase(pod, "Running")


@pytest.fixture
async def stage(fake_nvml_library: Path) -> AsyncIterator[Stage]:
    """One node with the contract's four GPUs."""
    clock = SystemClock()
    with short_folder() as folder:
        nvml = FakeNvml(library=fake_nvml_library, folder=folder, node=NODE)
        nvml.install(MODELS)
        variables = {
            **nvml.environment(),
            "ALIQUOT_AGENT_DRIVER_FILES": "simulated",
            "ALIQUOT_AGENT_SAMPLE": "0.2",
            "ALIQUOT_LOG_FORMAT": "json",
        }
        async with one_node(name=NODE, folder=folder, gpus="nvml", clock=clock, variables=variables) as node:
            credentials = Credentials(load=partial(load_configuration, kubeconfig=str(folder / "kubeconfig")))
            transport = HttpTransport(credentials=credentials, user_agent="test")
            await node.until_offered(NAMES)
            yield Stage(node=node, nvml=nvml, client=KubeClient(transport=transport))
            await transport.close()
        assert nvml.violations() == []


async def test_a_slice_is_in_the_metrics_as_long_as_its_pod(stage: Stage) -> None:
    """From what was granted to what the driver says of its GPU; and the agent is alive and ready."""

    async def ready() -> bool:
        return (await stage.page("/readyz"))[0] == 200

    await stage.until(ready)
    assert await stage.page("/healthz") == (200, "ok\n")
    pod = await stage.pod_on(gpu=1)
    uuid = stage.nvml.gpus[1].uuid
    slice_of = rf'aliquot_slice_{{}}\{{{{namespace="default",pod="worker",container="main",UUID="{uuid}"\}}}}'

    async def told() -> bool:
        return await stage.metric(slice_of.format("memory_used_bytes")) == "0.0"

    await stage.until(told)
    assert await stage.metric(slice_of.format("compute_granted_ratio")) == "0.3"
    assert await stage.metric(slice_of.format("memory_granted_bytes")) == str(1000 * 1024 * 1024.0)
    stage.nvml.start_process(gpu=1, pid=1, memory_mib=64)

    async def counted() -> bool:
        return await stage.metric(r'aliquot_gpu_processes_without_grant\{gpu="1",.*owner="host"\}') == "1.0"

    await stage.until(counted)
    assert await stage.metric(r'aliquot_rpc_duration_seconds_count\{rpc="PreStartContainer",outcome="ready"\}') == "1.0"
    assert await stage.metric("aliquot_kubelet_registrations_total") == "2.0"
    assert await stage.metric("aliquot_last_heartbeat_timestamp_seconds") is not None
    await stage.node.clear()

    async def gone() -> bool:
        return pod.metadata.name not in (await stage.page("/metrics"))[1]

    await stage.until(gone)


async def test_an_xid_shows_everywhere_until_an_operator_clears_it(stage: Stage) -> None:
    """On the node, in the metrics, as an Event of the pod on that GPU; then the annotation is taken in and removed."""
    pod = await stage.pod_on(gpu=2)
    stage.nvml.raise_xid(gpu=2, number=48)

    async def sick() -> bool:
        return await stage.health() == [Health.HEALTHY, Health.HEALTHY, Health.SICK, Health.HEALTHY]

    async def noted() -> bool:
        events = await stage.client.list(EVENTS, namespace="default")
        return any(one.reason == "GpuSick" and one.regarding.uid == pod.metadata.uid for one in events)

    await stage.until(sick)
    await stage.until(noted)
    assert await stage.metric(r'aliquot_gpu_health\{gpu="2",.*health="sick"\}') == "1.0"
    assert await stage.metric(r'aliquot_gpu_xid_errors_total\{gpu="2",.*xid="48"\}') == "1.0"
    note = {"metadata": {"annotations": {NAMES.clear_health: stage.nvml.gpus[2].uuid}}}
    await stage.client.patch(NODES, name=NODE, patch=merge_patch(note))

    async def well() -> bool:
        node = await stage.client.get(NODES, name=NODE)
        return await stage.health() == [Health.HEALTHY] * 4 and NAMES.clear_health not in node.metadata.annotations

    await stage.until(well)
