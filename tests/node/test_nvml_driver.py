"""What only the NVML driver can get wrong of its calls: threads, deadlines, shutdown, and when to open NVML anew."""

from __future__ import annotations

import asyncio
import os

import msgspec
import pynvml
import pytest

from aliquot_agent.gpus.driver import DriverClosedError, DriverFailedError, DriverSilentError
from aliquot_agent.gpus.model import Fault
from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock
from support.clocks import VirtualClock
from support.fake_nvml import FakeNvml
from support.gpu_contract import LONG_S
from support.nvml_stage import QUICK

pytestmark = pytest.mark.native


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
