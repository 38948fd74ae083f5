"""Instances of MIG through the real binding, on the fake library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import Fault, GpuFacts, GpuUsage
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_agent.health.inventories import Cards, inventory, seen
from aliquot_core.inventory import Health
from aliquot_kube.clock import SystemClock
from support.fake_nvml import FakeNvml
from support.nvml_stage import QUICK

pytestmark = pytest.mark.native
INVALID, NOT_SUPPORTED = 2, 3
ONE, THREE = (1, 9_856), (3, 40_320)


@pytest.fixture
async def driver(fake_nvml: FakeNvml) -> AsyncIterator[NvmlDriver]:
    """The driver on two A100, one A30 and one card without MIG; no test may break a rule of NVML's on the way."""
    fake_nvml.install([KNOWN_MODELS[name] for name in ("A100-80GB", "A100-80GB", "A30", "T4")])
    fake_nvml.gpus[3].mig = -1
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    yield driver
    fake_nvml.mend()
    await driver.close()
    assert fake_nvml.violations() == []


async def parts(driver: NvmlDriver) -> dict[str, GpuFacts]:
    """The instances, by uuid."""
    return {gpu.uuid: gpu for gpu in (await driver.discover()).gpus if gpu.instance}


async def usages(driver: NvmlDriver) -> dict[str, GpuUsage]:
    """What each GPU and each instance does, by uuid."""
    return {usage.uuid: usage for usage in await driver.usage()}


async def test_instances_are_told_beside_their_card(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """Each with its own memory, what it is of the card in slices, and the driver's numbers of it."""
    uuids = fake_nvml.cut(gpu=1, into=[THREE, ONE, ONE])
    found = await driver.discover()
    assert [gpu.uuid for gpu in found.gpus] == [*(gpu.uuid for gpu in fake_nvml.gpus), *uuids]
    assert [gpu.mig_enabled for gpu in found.gpus[:4]] == [False, True, False, False]
    first, *_, last = (gpu for gpu in found.gpus if gpu.instance)
    assert first.instance is not None
    assert last.instance is not None
    assert (first.memory_total_mib, first.memory_usable_mib) == (40_320, 40_304)
    assert (first.index, first.minor, first.model) == (1, 1, "NVIDIA A100-SXM4-80GB MIG 3g.40gb")
    assert (first.instance.parent, first.instance.gpu_instance) == (fake_nvml.gpus[1].uuid, 7)
    assert (first.instance.compute, last.instance.compute) == (42, 14)
    assert last.instance.gpu_instance == 9
    assert found.problems == ()


async def test_a_card_of_four_slices_is_reckoned_by_four(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """What a slice is of a card, its kinds of instances tell."""
    fake_nvml.gpus[2].slices = 4
    fake_nvml.cut(gpu=2, into=[(2, 11_968), (1, 5_952)])
    assert [gpu.instance.compute for gpu in (await parts(driver)).values() if gpu.instance] == [50, 25]


async def test_each_instance_tells_of_its_own_processes(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """The card tells of none, and of heat and power; how busy an instance is, nobody tells in MIG mode."""
    first, second = fake_nvml.cut(gpu=0, into=[ONE, ONE])
    fake_nvml.start_process(gpu=0, instance=0, pid=11, memory_mib=1_000, sm_percent=90)
    fake_nvml.start_process(gpu=0, instance=1, pid=12, memory_mib=None)
    await driver.discover()
    used = await usages(driver)
    assert [(process.pid, process.memory_mib, process.sm_percent) for process in used[first].processes] == [
        (11, 1_000, None)
    ]
    assert [process.pid for process in used[second].processes] == [12]
    card = used[fake_nvml.gpus[0].uuid]
    assert (card.processes, card.power_watts) == ((), 61.0)
    assert (used[first].memory_used_mib, used[second].memory_used_mib) == (1_000, 0)
    assert (used[first].utilization_percent, used[first].power_watts, used[first].throttle_reasons) == (None,) * 3


async def test_lists_that_are_kept_of_cards_alone_cost_no_instance_its_own(
    driver: NvmlDriver, fake_nvml: FakeNvml
) -> None:
    """What is refused of an instance's handle, as graphics may be, is empty there; the rest is told."""
    (uuid,) = fake_nvml.cut(gpu=0, into=[ONE])
    fake_nvml.start_process(gpu=0, instance=0, pid=11, memory_mib=1_000)
    for kind in ("Graphics", "MPSCompute"):
        fake_nvml.fault(function=f"nvmlDeviceGet{kind}RunningProcesses_v3", gpu=0, code=INVALID)
    await driver.discover()
    assert [process.pid for process in (await usages(driver))[uuid].processes] == [11]


async def test_a_card_whose_instances_can_t_be_read_tells_of_no_process(
    driver: NvmlDriver, fake_nvml: FakeNvml
) -> None:
    """They would seem to use the card without a grant, and might be ended for it."""
    fake_nvml.cut(gpu=0, into=[ONE])
    fake_nvml.start_process(gpu=0, instance=0, pid=11, memory_mib=1_000)
    fake_nvml.fault(function="nvmlDeviceGetGpuInstanceProfileInfo", gpu=0, code=NOT_SUPPORTED)
    (problem,) = (await driver.discover()).problems
    assert (problem.fault, problem.uuid) == (Fault.FAILED, fake_nvml.gpus[0].uuid)
    assert "tells of no instance" in problem.what
    assert [process for usage in (await usages(driver)).values() for process in usage.processes] == []


async def test_instances_come_and_go_with_what_the_operator_makes(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """What was taken away is not missed: no problem, no event, no place in the inventory."""
    before = fake_nvml.cut(gpu=0, into=[ONE, ONE])
    cards = seen(Cards(), await driver.discover(), now=1.0)
    fake_nvml.instances = fake_nvml.instances[:1]
    fake_nvml.write()
    assert set(await usages(driver)) == {gpu.uuid for gpu in fake_nvml.gpus} | {before[0]}
    found = await driver.discover()
    assert found.problems == ()
    cards = seen(cards, found, now=2.0)
    assert [gpu.uuid for gpu in inventory(cards).gpus if gpu.instance] == before[:1]
    fake_nvml.instances, fake_nvml.gpus[0].mig = [], 0
    fake_nvml.write()
    cards = seen(cards, await driver.discover(), now=3.0)
    assert [gpu.uuid for gpu in inventory(cards).gpus] == [gpu.uuid for gpu in fake_nvml.gpus]
    assert {gpu.health for gpu in inventory(cards).gpus} == {Health.HEALTHY}
    assert await driver.events(timeout_s=0.0) == []


async def test_a_lost_card_takes_its_instances_with_it_and_brings_them_back(
    driver: NvmlDriver, fake_nvml: FakeNvml
) -> None:
    """They stay in the list, sick, with the card's reason: containers hold their ids."""
    uuids = fake_nvml.cut(gpu=0, into=[ONE, THREE])
    cards = seen(Cards(), await driver.discover(), now=1.0)
    fake_nvml.lose(gpu=0)
    cards = seen(cards, await driver.discover(), now=2.0)
    found = {gpu.uuid: gpu for gpu in inventory(cards).gpus}
    assert [(found[uuid].health, found[uuid].usable.value) for uuid in uuids] == [(Health.SICK, 0)] * 2
    assert found[uuids[0]].reason.startswith("its GPU is sick: the GPU is lost")
    assert found[fake_nvml.gpus[1].uuid].health is Health.HEALTHY
    assert not set(uuids) & (await usages(driver)).keys()
    fake_nvml.recover(gpu=0)
    cards = seen(cards, await driver.discover(), now=3.0)
    assert {gpu.uuid: gpu.health for gpu in inventory(cards).gpus if gpu.instance} == dict.fromkeys(
        uuids, Health.HEALTHY
    )
    assert set(uuids) <= (await usages(driver)).keys()


async def test_an_old_driver_tells_of_instances_too(
    old_nvml_library: Path, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the newer calls for memory and processes."""
    old = FakeNvml(library=old_nvml_library, folder=fake_nvml.folder / "old")
    old.folder.mkdir()
    old.install([KNOWN_MODELS["A100-80GB"]])
    old.load_into_pynvml(monkeypatch)
    (uuid,) = old.cut(gpu=0, into=[ONE])
    old.start_process(gpu=0, instance=0, pid=11, memory_mib=1_000)
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    assert [gpu.memory_usable_mib for gpu in (await parts(driver)).values()] == [9_856]
    assert [process.pid for process in (await usages(driver))[uuid].processes] == [11]
    await driver.close()
