"""What breaks under the agent's own process on a node, and how the pods fare: a fake NVML, real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pynvml import NVML_ERROR_LIB_RM_VERSION_MISMATCH

from aliquot_core.inventory import Health
from support.agent_stage import NAMES, Stage, staged
from support.endpoints import short_folder
from support.http_api import LONG_S

pytestmark = pytest.mark.native

HEALTHY, DEGRADED, SICK = Health.HEALTHY, Health.DEGRADED, Health.SICK


@pytest.fixture
async def stage(fake_nvml_library: Path) -> AsyncIterator[Stage]:
    """One node."""
    async with staged(fake_nvml_library) as made:
        yield made


@pytest.mark.parametrize("command", ["agent", "endpoint"])
async def test_a_second_one_says_who_is_there_and_leaves(stage: Stage, command: str) -> None:
    """With an exit code of its own; the first serves pods as before."""
    second = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aliquot_cli.main", command),
        env=stage.environment | {"ALIQUOT_ENDPOINT_TAKEOVER_PATIENCE": "0"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await asyncio.wait_for(second.communicate(), LONG_S)
    assert second.returncode == 5, told
    last = told.decode().splitlines()[-1]
    assert {"agent": "is connected already", "endpoint": "another endpoint is running (pid "}[command] in last
    assert "; stop the other" in last or "; stop it, or this one" in last
    await stage.pod_on(gpu=0)
    assert stage.node.processes[command].returncode is None


async def test_a_gpu_is_lost_under_a_pod_and_comes_back(stage: Stage) -> None:
    """The pod is told and not ended, others start beside it, none on the lost GPU; then it does, by itself."""
    on_lost = await stage.pod_on(gpu=1)
    stage.nvml.lose(gpu=1)
    await stage.until_health(HEALTHY, SICK, HEALTHY, HEALTHY)
    assert "is sick" in await stage.until_told(on_lost, "GpuSick")
    await stage.pod_on(gpu=2, name="beside")
    late = await stage.bound_to(gpu=1, name="late")
    await stage.node.until_phase(on_lost, "Running")

    async def refused() -> bool:
        return any(line["pod"] == "default/late" for line in stage.logged("container refused"))

    await stage.until(refused)
    stage.nvml.recover(gpu=1)
    # NVML is opened anew for a lost GPU at the next look, a minute after the last.
    await stage.node.until_phase(late, "Running", seconds=100.0)
    assert await stage.health() == [HEALTHY] * 4


async def test_a_driver_of_another_version_than_its_library_is_called_that(stage: Stage) -> None:
    """Half an upgrade takes all GPUs out with the remedy, ends no pod, and is over when the other half is done."""
    pod = await stage.pod_on(gpu=3)
    stage.nvml.init = NVML_ERROR_LIB_RM_VERSION_MISMATCH
    stage.nvml.write()
    await stage.restart_agent()

    async def named() -> bool:
        return "driver/library version mismatch" in (await stage.inventory()).problem

    await stage.until(named)
    (line, *_) = stage.logged("no GPU can be given")
    assert "reboot" in line["reason"]

    async def counted() -> bool:
        return await stage.metric(r'aliquot_driver_trouble\{kind="mismatch"\}') == "1.0"

    await stage.until(counted)
    await stage.node.until_phase(pod, "Running")
    stage.nvml.init = 0
    stage.nvml.write()
    await stage.until_health(HEALTHY, HEALTHY, HEALTHY, HEALTHY)


async def test_an_operator_s_marks_hold_as_long_as_they_stand(stage: Stage) -> None:
    """Cordoned: told to its pod, which goes on, and nothing starts there; degraded: told, and used."""
    pod = await stage.pod_on(gpu=0)
    await stage.annotate(cordoned_gpus=stage.nvml.gpus[0].uuid, degraded_gpus=stage.nvml.gpus[1].uuid)
    await stage.until_health(SICK, DEGRADED, HEALTHY, HEALTHY)
    assert NAMES.cordoned_gpus in await stage.until_told(pod, "GpuSick")
    await stage.pod_on(gpu=1, name="slow")
    await stage.annotate(cordoned_gpus=None, degraded_gpus=None)
    await stage.until_health(HEALTHY, HEALTHY, HEALTHY, HEALTHY)
    assert (await stage.node.pod(pod)).status.phase == "Running"


async def test_without_record_and_podresources_a_start_is_held_not_failed(fake_nvml_library: Path) -> None:
    """Nobody can tell who starts; as soon as PodResources answers, the container does."""
    with short_folder() as elsewhere:
        socket = elsewhere / "late.sock"
        variables = {
            "ALIQUOT_AGENT_KUBELET_RECORD": str(elsewhere / "no record"),
            "ALIQUOT_AGENT_POD_RESOURCES": str(socket),
        }
        async with staged(fake_nvml_library, variables=variables) as stage:
            pod = await stage.bound_to(gpu=0)

            async def asked() -> bool:
                return any("no such socket" in line["error"] for line in stage.logged("PodResources does not answer"))

            await stage.until(asked)
            assert (await stage.node.pod(pod)).status.phase == "Pending"
            socket.symlink_to(stage.node.folders.pod_resources_socket)
            await stage.node.until_phase(pod, "Running")


async def test_a_grant_written_over_is_reported_as_drift(stage: Stage) -> None:
    """The container goes on as it was started; the log and a metric say that it is not what the pod says."""
    pod = await stage.pod_on(gpu=0)

    async def metric(value: str) -> bool:
        return await stage.metric(r'aliquot_drift\{kind="grant"\}') == value

    await stage.until(lambda: metric("0.0"))
    await stage.overwrite_grant(pod)
    await stage.until(lambda: metric("1.0"))
    (line,) = [line for line in stage.logged_as("drift: ") if pod.key in line["message"]]
    assert line["kind"] == "grant"
    await stage.node.until_phase(pod, "Running")
