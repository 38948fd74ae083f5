"""The NVML driver hears what happens to GPUs: no event is lost, and what can't be watched spoils no wait."""

from __future__ import annotations

import asyncio
import time

import pynvml
import pytest

from aliquot_agent.gpus.model import EventKind, Fault
from aliquot_agent.gpus.nvml import NvmlDriver
from support.fake_nvml import FakeNvml
from support.gpu_contract import LONG_S
from support.nvml_stage import NOT_SUPPORTED, QUICK, UNKNOWN

pytestmark = pytest.mark.native


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
