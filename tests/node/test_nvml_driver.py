"""What only the NVML driver can get wrong: threads, deadlines, shutdown, old drivers, the protocol's quirks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pynvml
import pytest

from aliquot_agent.gpus.driver import DriverClosedError, DriverFailedError, DriverSilentError, NoGpuError
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import EventKind, Fault, ProcessKind
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock
from support.clocks import VirtualClock
from support.fake_nvml import FakeNvml
from support.gpu_contract import LONG_S, MODELS
from support.nvml_stage import QUICK

pytestmark = pytest.mark.native
NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 3, 4, 999


@pytest.fixture
async def driver(fake_nvml: FakeNvml) -> AsyncIterator[NvmlDriver]:
    """The driver on four fake GPUs; no test may break a rule of NVML's on the way."""
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    yield driver
    fake_nvml.mend()
    await driver.close()
    assert fake_nvml.violations() == []


async def test_one_thread_asks_and_one_waits(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """All queries come from one thread, the waits for events from one other, none from the loop's own."""
    await driver.discover()
    await driver.usage()
    hearing = asyncio.ensure_future(driver.events(timeout_s=LONG_S))
    await asyncio.to_thread(fake_nvml.wait_for_call, "nvmlEventSetWait_v2")
    fake_nvml.raise_xid(gpu=0, number=31)
    assert [event.number for event in await hearing] == [31]
    calls = fake_nvml.calls()
    waiting = {call.thread for call in calls if call.function == "nvmlEventSetWait_v2"}
    asking = {call.thread for call in calls if call.function != "nvmlEventSetWait_v2"}
    assert (len(waiting), len(asking)) == (1, 1)
    assert not waiting & asking
    assert os.getpid() not in waiting | asking


async def test_shutdown_is_the_last_call_of_all(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """Close lets a slow call and a wait come out, frees the event set, then shuts NVML down, and nothing follows."""
    await driver.discover()
    fake_nvml.slow(function="nvmlDeviceGetPowerUsage", gpu=0, milliseconds=600_000)
    asking = asyncio.ensure_future(driver.usage())
    waiting = asyncio.ensure_future(driver.events(timeout_s=LONG_S))
    await asyncio.to_thread(fake_nvml.wait_for_call, "nvmlDeviceGetPowerUsage")
    closing = asyncio.ensure_future(driver.close())
    while not driver._desk._closed:  # noqa: ASYNC110 - it tells nobody that it takes no more calls
        await asyncio.sleep(0.001)
    fake_nvml.mend()
    await closing
    waiting.cancel()
    with pytest.raises(DriverClosedError):
        await asking
    functions = [call.function for call in fake_nvml.calls()]
    assert functions[-1] == "nvmlShutdown"
    assert functions.count("nvmlShutdown") == 1
    assert functions.count("nvmlEventSetCreate") == functions.count("nvmlEventSetFree") == 1


async def test_a_call_that_never_returns_keeps_shutdown_away(fake_nvml: FakeNvml) -> None:
    """With a call stuck inside, close gives up at its deadline and leaves NVML as it is."""
    driver = NvmlDriver(clock=SystemClock(), patience=msgspec.structs.replace(QUICK, close_s=0.1))
    await driver.discover()
    fake_nvml.slow(function="nvmlDeviceGetPowerUsage", gpu=1, milliseconds=600_000)
    assert len(await driver.usage()) == 3
    await driver.close()
    assert "nvmlShutdown" not in [call.function for call in fake_nvml.calls()]
    fake_nvml.mend()
    assert fake_nvml.violations() == []


async def test_the_deadline_is_the_clock_s(fake_nvml: FakeNvml) -> None:
    """A call is overdue when the clock that was handed in says so, not before."""
    clock = VirtualClock()
    driver = NvmlDriver(clock=clock, patience=msgspec.structs.replace(QUICK, call_s=5.0))
    await driver.discover()
    fake_nvml.slow(function="nvmlDeviceGetPowerUsage", gpu=0, milliseconds=600_000)
    asking = asyncio.ensure_future(driver.usage())
    await asyncio.to_thread(fake_nvml.wait_for_call, "nvmlDeviceGetPowerUsage")
    await clock.advance(4.9)
    assert not asking.done()
    await clock.advance(0.2)
    assert len(await asking) == 3
    fake_nvml.mend()
    await driver.close()


async def test_a_gpu_that_hangs_costs_its_deadline_once(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """While one GPU hangs it is not asked again, so the others are not kept, and threads do not pile up."""
    await driver.discover()
    fake_nvml.slow(function="*", gpu=0, milliseconds=600_000)
    for _ in range(20):
        assert len(await driver.usage()) == 3
    about_it = [
        call for call in fake_nvml.calls() if call.gpu == 0 and call.function == "nvmlDeviceGetProcessUtilization"
    ]
    assert len(about_it) == 1
    assert len({call.thread for call in fake_nvml.calls()}) == 2


async def test_a_hanging_driver_is_silent(fake_nvml: FakeNvml) -> None:
    """When initialisation itself hangs, that is said at the deadline, and at once the next time."""
    driver = NvmlDriver(clock=SystemClock(), patience=msgspec.structs.replace(QUICK, open_s=0.1))
    fake_nvml.slow(function="nvmlInitWithFlags", milliseconds=600_000)
    for _ in range(3):
        with pytest.raises(DriverSilentError):
            await driver.discover()
    await asyncio.to_thread(fake_nvml.wait_for_call, "nvmlInitWithFlags")
    assert len([call for call in fake_nvml.calls() if call.function == "nvmlInitWithFlags"]) == 1
    fake_nvml.mend()
    while True:
        try:
            found = await driver.discover()
            break
        except DriverSilentError:
            await asyncio.sleep(0.001)
    assert len(found.gpus) == 4
    await driver.close()


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


async def test_nvml_is_not_opened_anew_under_a_hanging_call(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """While a call hangs, a lost GPU waits: a shutdown now would be a use after free."""
    await driver.discover()
    fake_nvml.slow(function="*", gpu=1, milliseconds=600_000)
    fake_nvml.lose(gpu=0)
    for _ in range(2):
        found = await driver.discover()
        assert {problem.fault for problem in found.problems} == {Fault.LOST, Fault.SILENT}
    assert "nvmlShutdown" not in [call.function for call in fake_nvml.calls()]


async def test_after_a_fork_the_driver_is_of_no_use(
    driver: NvmlDriver, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child process has neither our threads nor NVML's state: it is refused, not left to hang."""
    await driver.discover()
    asked = len(fake_nvml.calls())
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        with pytest.raises(DriverClosedError):
            await driver.usage()
    assert len(fake_nvml.calls()) == asked


async def test_a_wait_that_never_returns_keeps_shutdown_away(fake_nvml: FakeNvml) -> None:
    """With the waiting thread stuck inside, close gives up at its deadline and leaves NVML as it is."""
    driver = NvmlDriver(clock=SystemClock(), patience=msgspec.structs.replace(QUICK, close_s=0.1))
    await driver.discover()
    fake_nvml.slow(function="nvmlEventSetWait_v2", milliseconds=600_000)
    assert await driver.events(timeout_s=0.05) == []
    await driver.close()
    assert "nvmlShutdown" not in [call.function for call in fake_nvml.calls()]
    fake_nvml.mend()
    assert fake_nvml.violations() == []


async def test_no_xid_is_lost_when_the_gpus_change(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """An XID that the old set of events has heard is told, though a new set took its place."""
    await driver.discover()
    fake_nvml.lose(gpu=1)
    fake_nvml.raise_xid(gpu=0, number=63)
    await driver.usage()
    heard: list[int | None] = []
    while 63 not in heard:
        events = await driver.events(timeout_s=LONG_S)
        assert events, "the XID was lost with its set"
        heard += [event.number for event in events]
    assert heard.count(63) == 1


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


async def test_one_gpu_that_can_t_be_watched(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """A GPU that refuses registration is used all the same and is a problem; the others' XIDs are heard."""
    fake_nvml.fault(function="nvmlDeviceRegisterEvents", gpu=0, code=NOT_SUPPORTED)
    fake_nvml.gpus[1].events = 0
    fake_nvml.write()
    found = await driver.discover()
    assert len(found.gpus) == 4
    assert [(problem.fault, problem.index) for problem in found.problems] == [
        (Fault.UNWATCHED, 0),
        (Fault.UNWATCHED, 1),
    ]
    assert await driver.events(timeout_s=0.05) == []
    fake_nvml.raise_xid(gpu=3, number=94)
    assert [event.number for event in await driver.events(timeout_s=LONG_S)] == [94]


async def test_every_kind_of_event(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """Unavailability and recovery actions are told apart from XIDs; an event without a GPU has no uuid."""
    await driver.discover()
    fake_nvml.raise_event(gpu=0, event_type=pynvml.nvmlEventTypeGpuUnavailableError, data=1)
    fake_nvml.raise_event(gpu=1, event_type=pynvml.nvmlEventTypeGpuRecoveryAction, data=2)
    fake_nvml.raise_event(gpu=-1, event_type=pynvml.nvmlEventTypeXidCriticalError, data=119)
    heard = await driver.events(timeout_s=LONG_S)
    assert [(event.kind, event.uuid, event.number) for event in heard] == [
        (EventKind.UNAVAILABLE, fake_nvml.gpus[0].uuid, 1),
        (EventKind.RECOVERY_ACTION, fake_nvml.gpus[1].uuid, 2),
        (EventKind.XID, None, 119),
    ]


async def test_xids_before_a_loss_are_heard(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """The XID that explains why a GPU was lost is not lost with it, though the wait for it fails next."""
    await driver.discover()
    fake_nvml.events.append(f"event 1 gpu=0 type={pynvml.nvmlEventTypeXidCriticalError} data=79")
    fake_nvml.lose(gpu=0)
    heard = await driver.events(timeout_s=LONG_S)
    while heard[-1].kind is not EventKind.LOST:
        heard += await driver.events(timeout_s=LONG_S)
    assert [(event.kind, event.number) for event in heard] == [(EventKind.XID, 79), (EventKind.LOST, None)]


async def test_a_wait_that_fails_is_not_a_busy_loop(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """When waiting itself fails, it is tried once per slice and usage goes on."""
    await driver.discover()
    fake_nvml.fault(function="nvmlEventSetWait_v2", code=UNKNOWN)
    began = time.monotonic()
    assert await driver.events(timeout_s=0.3) == []
    await asyncio.to_thread(fake_nvml.wait_for_call, "nvmlEventSetWait_v2")
    waits = [call for call in fake_nvml.calls() if call.function == "nvmlEventSetWait_v2"]
    assert len(waits) <= 4 + (time.monotonic() - began) / QUICK.slice_s
    assert len(await driver.usage()) == 4


async def test_a_lost_gpu_does_not_spoil_later_waits(
    driver: NvmlDriver, fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    """Once its loss is told, the lost GPU is out of the set of events, and waiting goes on without errors."""
    await driver.discover()
    fake_nvml.lose(gpu=0)
    assert [event.kind for event in await driver.events(timeout_s=LONG_S)] == [EventKind.LOST]
    caplog.clear()
    assert await driver.events(timeout_s=0.3) == []
    assert caplog.messages == []


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


async def test_a_card_gone_for_good_is_tried_ever_more_seldom(fake_nvml: FakeNvml) -> None:
    """NVML is initialised anew for a lost GPU after 30, 60 and 120 s, not at every look."""
    clock = VirtualClock()
    patience = msgspec.structs.replace(QUICK, reopen_first_s=30.0, reopen_last_s=600.0)
    driver = NvmlDriver(clock=clock, patience=patience)
    await driver.discover()
    fake_nvml.lose(gpu=0)
    opened = []
    for second in range(0, 240, 10):
        await driver.discover()
        functions = [call.function for call in fake_nvml.calls()]
        opened.append((second, functions.count("nvmlInitWithFlags")))
        await clock.advance(10)
    assert [second for (second, count), (_, before) in zip(opened[1:], opened, strict=False) if count > before] == [
        30,
        90,
        210,
    ]
    fake_nvml.recover(gpu=0)
    await clock.advance(240)
    assert len((await driver.discover()).gpus) == 4
    fake_nvml.lose(gpu=0)
    await driver.discover()
    fake_nvml.recover(gpu=0)
    await clock.advance(30)
    assert len((await driver.discover()).gpus) == 4, "after a recovery it begins again at 30 s"
    await driver.close()
    assert fake_nvml.violations() == []


async def test_an_nvml_that_was_shut_down_under_us_is_opened_again(driver: NvmlDriver, fake_nvml: FakeNvml) -> None:
    """If somebody else in the process shuts NVML down, one look fails and the next mends it, events included."""
    await driver.discover()
    pynvml.nvmlShutdown()
    with pytest.raises(DriverFailedError):
        await driver.discover()
    assert len((await driver.discover()).gpus) == 4
    assert await driver.events(timeout_s=0.05) == []
    fake_nvml.raise_xid(gpu=0, number=48)
    assert [event.number for event in await driver.events(timeout_s=LONG_S)] == [48]


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
