"""On a real NVIDIA GPU: what NVML says through our door is what nvidia-smi says."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import AsyncIterator

import pytest

from aliquot_agent.gpus.driver import GpuDriverError
from aliquot_agent.gpus.model import Discovery
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock
from support.require import skip_or_fail

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
FIELDS = ("uuid", "index", "name", "memory.total", "driver_version")


@pytest.fixture
async def driver() -> AsyncIterator[NvmlDriver]:
    """The real driver, where there is one."""
    running = NvmlDriver(clock=SystemClock())
    try:
        await running.discover()
    except GpuDriverError as error:
        await running.close()
        skip_or_fail("gpu", f"no real GPU here: {error}")
    yield running
    await running.close()


def told_by_nvidia_smi() -> list[dict[str, str]]:
    """One row a GPU."""
    if shutil.which("nvidia-smi") is None:
        skip_or_fail("gpu", "nvidia-smi is not on the PATH")
    query = [f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    printed = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, check=True).stdout
    return [dict(zip(FIELDS, (cell.strip() for cell in row), strict=True)) for row in csv.reader(printed.splitlines())]


async def test_the_inventory_is_what_nvidia_smi_says(driver: NvmlDriver) -> None:
    """Uuids, names, memory and driver version agree for every GPU."""
    found: Discovery = await driver.discover()
    rows = told_by_nvidia_smi()
    assert {gpu.uuid for gpu in found.gpus} == {row["uuid"] for row in rows}
    for row in rows:
        (gpu,) = [gpu for gpu in found.gpus if gpu.uuid == row["uuid"]]
        assert (gpu.index, gpu.model) == (int(row["index"]), row["name"])
        assert abs(gpu.memory_total_mib - float(row["memory.total"])) <= 1
        assert 0 <= gpu.memory_reserved_mib < gpu.memory_total_mib / 10
        assert found.driver.driver_version == row["driver_version"]


async def test_usage_is_told_of_every_gpu(driver: NvmlDriver) -> None:
    """Each GPU answers, and says nothing that can't be."""
    found = await driver.discover()
    usage = {one.uuid: one for one in await driver.usage()}
    assert usage.keys() == {gpu.uuid for gpu in found.gpus}
    for gpu in found.gpus:
        assert 0 <= usage[gpu.uuid].memory_used_mib <= gpu.memory_total_mib
