"""What the agent's process says of itself, and where a sick GPU shows: real processes on a fake NVML."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot_core.inventory import Health
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import EVENTS, NODES
from support.agent_stage import NAMES, NODE, Stage, staged

pytestmark = pytest.mark.native


@pytest.fixture
async def stage(fake_nvml_library: Path) -> AsyncIterator[Stage]:
    """One node."""
    async with staged(fake_nvml_library) as made:
        yield made


async def test_a_slice_is_in_the_metrics_as_long_as_its_pod(stage: Stage) -> None:
    """From what was granted to what the driver says of its GPU; and the agent is alive and ready."""

    async def ready() -> bool:
        return (await stage.page("/readyz"))[0] == 200

    await stage.until(ready)
    assert await stage.page("/healthz") == (200, "ok\n")
    pod = await stage.pod_on(gpu=1)
    uuid = stage.nvml.gpus[1].uuid
    assert f"main: 30 % and 1000 MiB of {uuid}; isolation" in await stage.until_told(pod, "SliceReady")
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
