"""A node whose operator cuts a GPU into instances while it runs: real processes on a fake NVML."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pynvml
import pytest

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health
from aliquot_core.objects import Pod
from support.agent_stage import NAMES, NODE, Stage, staged

pytestmark = pytest.mark.native

CARD = 3


@pytest.fixture
async def stage(fake_nvml_library: Path) -> AsyncIterator[Stage]:
    """One node."""
    async with staged(fake_nvml_library) as made:
        yield made


async def cut(stage: Stage) -> list[Gpu]:
    """Make two instances of a card, and wait until the node says so."""
    uuids = stage.nvml.cut(gpu=CARD, into=[(1, 9_856), (1, 9_856)])
    # Any event that is not a program's own fault lets the agent look afresh, as each minute does.
    stage.nvml.raise_event(gpu=0, event_type=pynvml.nvmlEventTypeGpuRecoveryAction, data=0)
    found: list[Gpu] = []

    async def there() -> bool:
        found[:] = [gpu for gpu in (await stage.inventory()).gpus if gpu.instance]
        return [gpu.uuid for gpu in found] == uuids

    await stage.until(there)
    return found


async def bound(stage: Stage, gpu: Gpu) -> Pod:
    """A pod that asked for 10 % and was granted an instance."""
    limits = {NAMES.compute: "10", NAMES.memory: "1000"}
    container = {"name": "main", "image": "none", "command": ["sleep", "60"], "resources": {"limits": limits}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker", "namespace": "default"},
        "spec": {"containers": [container], "schedulerName": "by-hand", "terminationGracePeriodSeconds": 0},
    }
    pod = await stage.node.create(body)
    part = Slice(gpu=gpu.uuid, compute=gpu.compute, limit=gpu.compute, memory=gpu.usable)
    grant = Grant(node=NODE, pod=pod.metadata.uid, containers={"main": ContainerGrant(slices=(part,), isolation="mig")})
    await stage.node.bind(pod, {NAMES.grant: encode_grant(grant)})
    return await stage.node.until_phase(pod, "Running")


async def test_a_card_that_is_cut_is_offered_by_instance(stage: Stage) -> None:
    """Its instances come in its place, and who uses one is not taken for who uses its neighbour."""
    first, second = await cut(stage)
    assert [gpu.uuid for gpu in (await stage.inventory()).gpus[:3]] == [gpu.uuid for gpu in stage.nvml.gpus[:3]]
    assert (first.compute.value, first.usable.value, first.isolation) == (14, 9_840, ["mig"])
    pod = await bound(stage, second)
    ready = f"main: 14 % and 9840 MiB of {second.uuid}; isolation mig: compute held, memory held"
    assert await stage.until_told(pod, "SliceReady") == ready
    slice_of = rf'namespace="default",pod="worker",container="main",UUID="{second.uuid}"\}}'
    stranger = rf'aliquot_gpu_processes_without_grant\{{gpu="{CARD}",UUID="{first.uuid}",.*owner="host"\}}'
    stage.nvml.start_process(gpu=CARD, instance=0, pid=1, memory_mib=64)

    async def counted() -> bool:
        return (await stage.metric(stranger)) == "1.0"

    await stage.until(counted)
    assert await stage.metric(rf'aliquot_gpu_memory_used_bytes\{{gpu="{CARD}",UUID="{second.uuid}",.*\}}') == "0.0"
    assert await stage.metric(rf"aliquot_slice_memory_used_bytes\{{{slice_of}") == "0.0"
    assert await stage.metric(rf"aliquot_slice_compute_granted_ratio\{{{slice_of}") == "0.14"
    card = stage.nvml.gpus[CARD].uuid
    assert await stage.metric(rf'aliquot_gpu_instance\{{.*UUID="{first.uuid}".*card="{card}".*\}}') == "1.0"


async def test_an_xid_of_the_card_is_told_to_the_pods_of_its_instances(stage: Stage) -> None:
    """And to no others; it ends when the card was looked after."""
    first, second = await cut(stage)
    pod = await bound(stage, first)
    stage.nvml.raise_xid(gpu=CARD, number=79)
    await stage.until_health(*[Health.HEALTHY] * 3, Health.SICK, Health.SICK)
    told = await stage.until_told(pod, "GpuSick")
    assert told.startswith(f"GPU {first.uuid} is sick: its GPU is sick: XID 79")
    since = rf'aliquot_gpu_health_since_timestamp_seconds\{{gpu="{CARD}",UUID="{first.uuid}",.*\}}'
    assert await stage.metric(since) is not None
    await stage.annotate(clear_health=stage.nvml.gpus[CARD].uuid)
    await stage.until_health(*[Health.HEALTHY] * 5)
    assert second.uuid in {gpu.uuid for gpu in (await stage.inventory()).gpus}
