"""What the NVML driver tells of GPUs: by old drivers too, of cards that can do less or fail, through NVML's quirks."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from aliquot_agent.gpus.driver import NoGpuError
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import EventKind, Fault, ProcessKind
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock
from support.fake_nvml import FakeNvml
from support.gpu_contract import MODELS
from support.nvml_stage import NO_PERMISSION, NOT_SUPPORTED, QUICK, UNKNOWN

pytestmark = pytest.mark.native


async def test_old_drivers_do_with_less(
    fake_nvml: FakeNvml, old_nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library without the newer functions gives all facts but the reserved memory."""
    fake_nvml.library = old_nvml_library
    fake_nvml.folder = fake_nvml.folder / "old"
    fake_nvml.folder.mkdir()
    fake_nvml.start_process(gpu=3, pid=9, memory_mib=100, sm_percent=20)
    fake_nvml.load_into_pynvml(monkeypatch)
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    last = (await driver.discover()).gpus[3]
    assert (last.memory_total_mib, last.memory_reserved_mib, last.architecture) == (81920, 0, "ampere")
    usage = (await driver.usage())[3]
    assert usage.processes[0].memory_mib == 100
    assert (usage.temperature_celsius, usage.throttle_reasons) == (40, ())
    # Version 1 can't tell the driver's own share from the tenants'.
    assert usage.memory_used_mib == 100 + KNOWN_MODELS["A100-80GB"].memory_reserved_mib
    assert [event.kind for event in await driver.events(timeout_s=0.05)] == []
    await driver.close()


async def test_what_a_card_can_t_do_is_none_and_asked_once(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """What is not supported or not permitted is None for that GPU only, and is not asked again."""
    fake_nvml.fault(function="nvmlDeviceGetPowerUsage", gpu=1, code=NOT_SUPPORTED)
    fake_nvml.fault(function="nvmlDeviceGetProcessUtilization", gpu=1, code=NOT_SUPPORTED)
    fake_nvml.fault(function="nvmlDeviceGetUtilizationRates", gpu=1, code=NO_PERMISSION)
    fake_nvml.start_process(gpu=1, pid=4, memory_mib=10, sm_percent=50)
    for _ in range(3):
        usage = await driver.usage()
    assert (usage[1].power_watts, usage[1].utilization_percent) == (None, None)
    assert usage[1].processes[0].sm_percent is None
    assert usage[0].power_watts == 61.0
    asked = [call for call in fake_nvml.calls() if call.gpu == 1 and call.function == "nvmlDeviceGetPowerUsage"]
    assert len(asked) == 1


async def test_what_a_card_can_t_do_is_asked_again_of_a_new_nvml(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A new initialisation may meet a new driver, so nothing is taken as impossible from before."""
    fake_nvml.fault(function="nvmlDeviceGetPowerUsage", gpu=1, code=NOT_SUPPORTED)
    assert (await driver.usage())[1].power_watts is None
    fake_nvml.mend()
    fake_nvml.lose(gpu=0)
    await driver.usage()
    fake_nvml.recover(gpu=0)
    await driver.discover()
    assert (await driver.usage())[1].power_watts == 61.0


async def test_a_failing_gpu_is_a_problem_of_its_own(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """An unknown error from one GPU names call, code and GPU, and leaves three GPUs; then it recovers."""
    await driver.discover()
    fake_nvml.fault(function="nvmlDeviceGetName", gpu=2, code=UNKNOWN)
    found = await driver.discover()
    assert len(found.gpus) == 3
    assert (found.problems[0].fault, found.problems[0].uuid) == (Fault.FAILED, fake_nvml.gpus[2].uuid)
    assert "nvmlDeviceGetName" in found.problems[0].what
    assert "999" in found.problems[0].what
    fake_nvml.mend()
    assert len((await driver.discover()).gpus) == 4
    assert [event.kind for event in await driver.events(timeout_s=0)] == [EventKind.FAILED, EventKind.RECOVERED]


async def test_a_gpu_bad_from_the_start_has_no_uuid(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A GPU that was never seen well is a problem by its index."""
    fake_nvml.lose(gpu=1)
    found = await driver.discover()
    assert [(problem.fault, problem.uuid, problem.index) for problem in found.problems] == [(Fault.LOST, None, 1)]
    assert len(found.gpus) == 3


async def test_a_gpu_that_is_counted_no_more_is_lost(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A GPU that vanishes from the list is lost by its uuid, though the others' indexes move up."""
    await driver.discover()
    gone, *rest = fake_nvml.gpus
    fake_nvml.gpus, fake_nvml.links = rest, {}
    fake_nvml.write()
    for _ in range(2):
        found = await driver.discover()
        assert [gpu.uuid for gpu in found.gpus] == [gpu.uuid for gpu in rest]
        assert [(problem.fault, problem.uuid) for problem in found.problems] == [(Fault.LOST, gone.uuid)]
    assert [(event.kind, event.uuid) for event in await driver.events(timeout_s=0)] == [(EventKind.LOST, gone.uuid)]


async def test_no_gpu_is_said(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A driver without GPUs is an error that says so."""
    fake_nvml.install([])
    with pytest.raises(NoGpuError, match="no GPU"):
        await driver.discover()


@pytest.mark.parametrize("included", [False, True])
async def test_used_memory_means_the_same_with_every_driver(
    driver: NvmlDriver, fake_nvml: FakeNvml, *, included: bool
) -> None:
    """Whether the driver counts its own share as used or not, it is not the tenants'."""
    fake_nvml.used_includes_reserved = included
    fake_nvml.start_process(gpu=0, pid=1, memory_mib=1000)
    assert (await driver.usage())[0].memory_used_mib == 1000


async def test_compute_is_what_was_done_since_the_last_look(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A sample counts once: a process that did nothing since is at 0, and one that did is at its new sample."""
    fake_nvml.start_process(gpu=0, pid=1, memory_mib=10, sm_percent=80)
    assert (await driver.usage())[0].processes[0].sm_percent == 80
    for _ in range(2):
        assert (await driver.usage())[0].processes[0].sm_percent == 0
    fake_nvml.start_process(gpu=0, pid=1, memory_mib=10, sm_percent=15)
    assert (await driver.usage())[0].processes[0].sm_percent == 15


async def test_a_process_in_several_lists_is_one(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A process that the driver lists for graphics, compute and MPS is one process, an MPS client."""
    for kind in ("graphics", "compute", "mps"):
        fake_nvml.start_process(gpu=0, pid=6, memory_mib=300, kind=kind)
    processes = (await driver.usage())[0].processes
    assert [(process.pid, process.memory_mib, process.kind) for process in processes] == [(6, 300, ProcessKind.MPS)]


async def test_links_by_nvlink_and_switch(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """Direct NVLinks are counted per pair, links through a switch per GPU, and PCIe is named by distance."""
    for gpu, switch in zip(fake_nvml.gpus, (0, 0, 18, 18), strict=True):
        gpu.switch_links = switch
    fake_nvml.links |= {(1, 0): (4, 20), (2, 0): (0, 30)}
    fake_nvml.write()
    first, second, third, last = (await driver.discover()).gpus
    assert first.links == {second.uuid: "NV4", third.uuid: "PHB", last.uuid: "SYS"}
    assert third.links == {first.uuid: "PHB", second.uuid: "SYS", last.uuid: "NV18"}


async def test_mig_mode_and_numa(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """MIG mode is told, a card without MIG is not in it, and no NUMA answer is None."""
    fake_nvml.gpus[0].mig, fake_nvml.gpus[1].mig, fake_nvml.gpus[2].numa = 1, -1, -1
    fake_nvml.write()
    gpus = (await driver.discover()).gpus
    assert [gpu.mig_enabled for gpu in gpus] == [True, False, False, False]
    assert [gpu.numa_node for gpu in gpus] == [0, 0, None, 1]


async def test_throttling_is_named(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """Reasons for slow clocks come by name, also beside bits that are not known yet."""
    fake_nvml.gpus[0].throttle = 0x8000_0048
    fake_nvml.write()
    assert (await driver.usage())[0].throttle_reasons == ("hardware-slowdown", "hardware-thermal")


async def test_a_half_written_state_is_not_believed(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """The fake library keeps its last whole state when the file is cut off or gone."""
    await driver.discover()
    whole = fake_nvml.state.read_text()
    fake_nvml.state.write_text(whole[: len(whole) // 2])
    assert len((await driver.discover()).gpus) == len(MODELS)
    fake_nvml.state.unlink()
    assert len((await driver.discover()).gpus) == len(MODELS)


async def test_the_fake_is_strict_about_struct_versions(driver: NvmlDriver) -> None:
    """A struct of another version is refused, so a wrong call can't pass on the fake."""
    await driver.discover()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlDeviceGetMemoryInfo(handle, version=2)
    assert caught.value.value == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
