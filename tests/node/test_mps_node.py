"""A node that shares its GPUs by MPS: our real processes, with a stand-in for NVIDIA's program."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aliquot_agent.isolation.gpu_modes import Use
from support.agent_stage import NAMES, Stage, staged
from support.mps import StandIn

pytestmark = [pytest.mark.native, pytest.mark.timeout(300)]


@asynccontextmanager
async def keeping(stage: Stage, stand_in: StandIn) -> AsyncIterator[None]:
    """Let `aliquot mps` run."""
    told = {"ALIQUOT_MPS_FOLDER": str(stand_in.home / "mps"), "ALIQUOT_MPS_PROGRAM": str(stand_in.program)}
    await stage.node.start("mps", environment=stage.environment | told)
    try:
        yield
    finally:
        await stage.node.stop("mps")


async def until_offered(stage: Stage, *modes: str) -> str:
    """Wait until every GPU offers just these modes; what is said to be in the way of others."""

    async def so() -> bool:
        return all(gpu.isolation == list(modes) for gpu in (await stage.inventory()).gpus)

    await stage.until(so)
    return (await stage.inventory()).gpus[0].isolation_lack


async def until_used(stage: Stage, stand_in: StandIn, gpu: str, use: Use) -> None:
    """Wait until the keeper has brought it there."""

    async def so() -> bool:
        told = stand_in.folder.seat(gpu).told
        return told is not None and told.use is use and not told.problem

    await stage.until(so)


async def test_a_pod_waits_for_its_daemon_which_outlives_agents(fake_nvml_library: Path, tmp_path: Path) -> None:
    """Without a keeper MPS is not offered; a pod gets the daemon and its limits, and the last one frees the GPU."""
    variables = {"ALIQUOT_AGENT_ISOLATION": "mps", "ALIQUOT_AGENT_MPS_FOLDER": str(tmp_path / "mps")}
    async with staged(fake_nvml_library, variables=variables) as stage:
        stand_in = StandIn(home=tmp_path, modes=f"{stage.nvml.state}.compute-")
        gpu = stage.nvml.gpus[0].uuid
        assert "no process keeps MPS daemons" in await until_offered(stage, "observe")
        with contextlib.closing(stand_in):
            async with keeping(stage, stand_in):
                assert await until_offered(stage, "mps") == ""
                command = ("sh", "-c", "env | grep CUDA_MPS | sort; exec sleep 600")
                pod = await stage.bound_to(0, command=command, isolation="mps")
                await stage.node.until_phase(pod, "Running", seconds=120)
                assert "isolation mps: compute best tried, memory only watched" in await stage.until_told(
                    pod, "SliceReady"
                )
                daemon = stand_in.pid(gpu)
                assert daemon is not None

                async def printed() -> bool:
                    return "PINNED" in stage.node.output(pod, "main")

                await stage.until(printed)
                assert stage.node.output(pod, "main").splitlines() == [
                    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
                    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1000M",
                    # The small kubelet mounts nothing: the folder is the host's.
                    f"CUDA_MPS_PIPE_DIRECTORY={stand_in.folder.pipe(gpu)}",
                ]
                await stage.restart_agent()
                await stage.node.until_offered(NAMES, seconds=120)
                assert await until_offered(stage, "mps") == ""
                assert (stand_in.folder.wanted(gpu), stand_in.pid(gpu)) == (Use.SHARED, daemon)
                await stage.node.clear(seconds=60)
                await until_used(stage, stand_in, gpu, Use.FREE)
                assert stand_in.pid(gpu) is None
        # A keeper that was there since the boot is expected back: nothing else gets in meanwhile.
        assert await until_offered(stage, "mps") == ""
