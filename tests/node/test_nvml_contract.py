"""The NVML driver, through the real nvidia-ml-py, passes the suite that the simulated one passes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock
from support.fake_nvml import FakeNvml
from support.gpu_contract import GpuDriverContract, Stage
from support.nvml_stage import QUICK, FakeHands

pytestmark = pytest.mark.native


class TestNvmlDriver(GpuDriverContract):
    """The suite, on the fake library; no test may break a rule of NVML's on the way."""

    @pytest.fixture
    async def stage(self, fake_nvml: FakeNvml) -> AsyncIterator[Stage]:
        """Four GPUs behind the fake library."""
        driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
        yield Stage(driver=driver, hands=FakeHands(fake_nvml), uuids=[gpu.uuid for gpu in fake_nvml.gpus])
        fake_nvml.mend()
        await driver.close()
        assert fake_nvml.violations() == []
