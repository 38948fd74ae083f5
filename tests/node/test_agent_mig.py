"""A node whose operator cuts a GPU into instances while it runs: real processes on a fake NVML."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pynvml
import pytest

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health
from aliquot_core.objects import Pod
from aliquot_kube.resources import PODS
from support.agent_stage import NAMES, NODE, Stage, staged
from support.up_process import processes_of

pytestmark = pytest.mark.native

CARD = 3


@pytest.fixture
async def stage(fake_nvml_library: Path) -> AsyncIterator[Stage]:
    """One node."""
    async with staged(fake_nvml_library) as made:
        yield made


async def cut(stage: Stage, *, into: Sequence[tuple[int, int]] = ((1, 9_856), (1, 9_856))) -> list[Gpu]:
    """Make instances of a card, in the place of those that it has, and wait until the node says so."""
    uuids = stage.nvml.cut(gpu=CARD, into=into)
    look_afresh(stage)
    found: list[Gpu] = []

    async def there() -> bool:
        found[:] = [gpu for gpu in (await stage.inventory()).gpus if gpu.instance]
        return [(gpu.uuid, gpu.compute.value) for gpu in found] == [
            (uuid, 100 * slices // 7) for uuid, (slices, _) in zip(uuids, into, strict=True)
        ]

    await stage.until(there)
    return found


def look_afresh(stage: Stage) -> None:
    """Any event that is not a program's own fault lets the agent do so, as each minute does."""
    stage.nvml.raise_event(gpu=0, event_type=pynvml.nvmlEventTypeGpuRecoveryAction, data=0)


async def bound(stage: Stage, gpu: Gpu, *, name: str = "worker", phase: str = "Running") -> Pod:
    """A pod that asked for 10 % and was granted an instance, once it is in that phase."""
    limits = {NAMES.compute: "10", NAMES.memory: "1000"}
    container = {"name": "main", "image": "none", "command": ["sleep", "600"], "resources": {"limits": limits}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "schedulerName": "by-hand", "terminationGracePeriodSeconds": 0},
    }
    pod = await stage.node.create(body)
    part = Slice(gpu=gpu.uuid, compute=gpu.compute, limit=gpu.compute, memory=gpu.usable)
    grant = Grant(node=NODE, pod=pod.metadata.uid, containers={"main": ContainerGrant(slices=(part,), isolation="mig")})
    await stage.node.bind(pod, {NAMES.grant: encode_grant(grant)})
    return await stage.node.until_phase(pod, phase)


async def until_held(stage: Stage, pod: Pod, why: str) -> None:
    """Wait until the pod's container is kept from starting, with this reason."""

    async def said() -> bool:
        statuses = (await stage.node.pod(pod)).status.container_statuses
        return any(why in status.state.get("waiting", {}).get("message", "") for status in statuses)

    await stage.until(said)


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


async def test_instances_that_are_made_anew_are_others(stage: Stage) -> None:
    """Who held one that is gone is not let start again, nor who has one of its name and another size: both are told.

    A driver lets nobody take away what is in use, but a reboot does. Nothing is given twice meanwhile.
    """
    first, second = await cut(stage)
    stays, goes = await bound(stage, first, name="stays"), await bound(stage, second, name="goes")
    (large,) = await cut(stage, into=[(3, 40_320)])
    assert large.uuid == first.uuid
    late = await bound(stage, large, name="late", phase="Pending")
    await until_held(stage, late, "over-granted")
    for pod, why in (
        (goes, f"GPU {second.uuid} is not on node {NODE}"),
        (stays, f"GPU {first.uuid} is an instance of MIG and given whole: 42 % and 40304 MiB"),
    ):
        for pid in processes_of(pod.metadata.uid):
            os.kill(pid, signal.SIGKILL)
        await until_held(stage, pod, why)
        await stage.client.delete(PODS, namespace="default", name=pod.metadata.name)
    await stage.node.until_phase(late, "Running")


@pytest.mark.parametrize(
    ("state", "why", "held"),
    [
        ("pending", "MIG mode is on, and off after the next reset", "is sick: MIG mode is on, and off after"),
        ("empty", "MIG mode is on and there are no instances", f"is not on node {NODE}"),
        ("partly", "its compute instance has 1 of the 3 slices of its GPU instance", "is sick: its compute instance"),
    ],
)
async def test_a_card_that_is_cut_so_starts_nothing_and_says_why(stage: Stage, state: str, why: str, held: str) -> None:
    """It is sick in the inventory, with what to do; who was granted it is held and told, and all others go on."""
    (instance,) = await cut(stage, into=[(3, 40_320)])
    beside, here = await stage.pod_on(gpu=0, name="beside"), await bound(stage, instance, name="here")
    if state == "pending":
        stage.nvml.gpus[CARD].mig_wanted = 0
    elif state == "partly":
        stage.nvml.instances[0].used_slices = 1
    else:
        stage.nvml.instances = []
    stage.nvml.write()
    look_afresh(stage)

    async def sick() -> bool:
        found = [gpu for gpu in (await stage.inventory()).gpus if gpu.index == CARD]
        return [gpu.health for gpu in found] == [Health.SICK] and why in found[0].reason

    await stage.until(sick)
    late = await bound(stage, instance, name="late", phase="Pending")
    await until_held(stage, late, held)
    assert (await stage.health())[:CARD] == [Health.HEALTHY] * CARD
    for pod in (beside, here):
        assert (await stage.node.pod(pod)).status.phase == "Running"
