"""From an error of the driver to what the kubelet is told, on the real NVML binding and a fake library."""

from __future__ import annotations

import pytest

from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_agent.starting.device_ids import device_tables, stems
from aliquot_core.inventory import Health
from aliquot_core.names import Names
from aliquot_kube.clock import SystemClock
from support.fake_nvml import FakeNvml
from support.nvml_stage import QUICK
from support.watched import Watched

pytestmark = pytest.mark.native
NAMES = Names()


def unhealthy(watched: Watched) -> set[str]:
    """The GPUs whose ids the kubelet would be told are unhealthy, all of each or none."""
    inventory = watched.watch.inventory
    by_stem = {stem: uuid for uuid, stem in stems(gpu.uuid for gpu in inventory.gpus).items()}
    table = device_tables(inventory, names=NAMES, best_effort_slots=4)
    told = {(by_stem[device.id.rpartition("-")[0]], device.healthy) for devices in table.values() for device in devices}
    assert len(told) == len(inventory.gpus)
    return {uuid for uuid, healthy in told if not healthy}


async def test_an_xid_takes_its_gpu_out_until_it_is_cleared(fake_nvml: FakeNvml) -> None:
    """All of its ids, and nobody else's."""
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    watched = Watched(driver=driver, clock=SystemClock())
    bad = fake_nvml.gpus[2].uuid
    async with watched.running():
        await watched.until(lambda: len(watched.health) == 4)
        fake_nvml.raise_xid(gpu=2, number=95)
        await watched.until(lambda: Health.SICK in watched.health)
        assert unhealthy(watched) == {bad}
        assert watched.watch.xids == {(bad, 95): 1}
        watched.annotate(clear_health=bad)
        assert unhealthy(watched) == set()
    await driver.close()
    assert fake_nvml.violations() == []


async def test_a_lost_gpu_is_out_until_it_answers_again(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the XID that told of it, and without anybody's doing."""
    monkeypatch.setattr("aliquot_agent.health.gpu_watch.LOOK_AFRESH", 0.2)
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    watched = Watched(driver=driver, clock=SystemClock())
    bad = fake_nvml.gpus[0].uuid
    async with watched.running():
        await watched.until(lambda: len(watched.health) == 4)
        fake_nvml.raise_xid(gpu=0, number=79)
        fake_nvml.lose(gpu=0)
        await watched.until(lambda: {"xid 79", "lost"} <= watched.watch.cards.book.on(bad).keys())
        assert unhealthy(watched) == {bad}
        fake_nvml.recover(gpu=0)
        await watched.until(lambda: watched.health[0] is Health.HEALTHY)
        assert unhealthy(watched) == set()
    await driver.close()
    assert fake_nvml.violations() == []
