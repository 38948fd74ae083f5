"""The simulated driver passes the suite that the real one passes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aliquot_agent.gpus.driver import driver_mismatch, driver_missing
from aliquot_agent.gpus.simulated import SimulatedDriver, simulated_uuid
from aliquot_kube.clock import SystemClock
from support.gpu_contract import DEADLINE_S, MODELS, GpuDriverContract, Stage


class _SimulatedHands(SimulatedDriver):
    def hang(self, *, gpu: int) -> None:
        self.slow(gpu=gpu, seconds=1e6)

    def unhang(self) -> None:
        for gpu in range(len(MODELS)):
            self.slow(gpu=gpu, seconds=0)

    def remove_driver(self) -> None:
        self.refuse(driver_missing(library=True))

    def mismatch_driver(self) -> None:
        self.refuse(driver_mismatch())


class TestSimulatedDriver(GpuDriverContract):
    """The suite, on simulated GPUs."""

    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        """Four simulated GPUs."""
        driver = _SimulatedHands(node="node-1", models=MODELS, clock=SystemClock(), deadline_s=DEADLINE_S)
        uuids = [simulated_uuid(node="node-1", index=index) for index in range(len(MODELS))]
        yield Stage(driver=driver, hands=driver, uuids=uuids)
        await driver.close()
