"""What every GPU driver does, real or simulated: one suite, so that the simulated side can be believed.

A test module inherits `GpuDriverContract` and gives it a `stage` fixture: a driver, and the hands that change its GPUs.
The stage has three L40S and one A100, a call deadline of a second and no wait before a lost GPU is
tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pytest

from aliquot_agent.gpus.driver import DriverClosedError, DriverMismatchError, DriverMissingError, GpuDriver
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.model import EventKind, Fault, GpuEvent, GpuProcess, ProcessKind

MODELS = (*[KNOWN_MODELS["L40S"]] * 3, KNOWN_MODELS["A100-80GB"])
# Above what a loaded machine takes for a healthy call, for those must not look silent.
DEADLINE_S = 1.0
# Far longer than anything takes: a test that waits so long has failed.
LONG_S = 60.0


class Hands(Protocol):
    """Commands that both sides understand."""

    def start_process(self, *, gpu: int, pid: int, memory_mib: int | None, sm_percent: int, kind: ProcessKind) -> None:
        """List a process on a GPU; memory of None is hidden."""

    def stop_process(self, *, pid: int) -> None:
        """Take it off."""

    def raise_xid(self, *, gpu: int, number: int) -> None:
        """Report an error."""

    def lose(self, *, gpu: int) -> None:
        """Let a GPU fall off the bus."""

    def recover(self, *, gpu: int) -> None:
        """Let it come back."""

    def hang(self, *, gpu: int) -> None:
        """Let every call about a GPU hang."""

    def unhang(self) -> None:
        """Let the calls that hang come back."""

    def remove_driver(self) -> None:
        """Unload the kernel's half."""

    def mismatch_driver(self) -> None:
        """Leave an upgrade half done."""


@dataclass(kw_only=True)
class Stage:
    """One driver under test; `uuids` by index."""

    driver: GpuDriver
    hands: Hands
    uuids: list[str]


async def events_until(driver: GpuDriver, wanted: Callable[[GpuEvent], bool]) -> list[GpuEvent]:
    """Collect events up to and with the wanted one."""
    collected: list[GpuEvent] = []
    while not any(wanted(event) for event in collected):
        heard = await driver.events(timeout_s=LONG_S)
        assert heard, f"nothing happened in {LONG_S} s, only {collected}"
        collected += heard
    return collected


def _only(kind: EventKind, uuid: str) -> Callable[[GpuEvent], bool]:
    return lambda event: event.kind is kind and event.uuid == uuid


class GpuDriverContract:
    """The suite."""

    async def test_discover_tells_each_gpu(self, stage: Stage) -> None:
        """Every GPU is there in NVML's order with its facts, the driver with its versions, and nothing is wrong."""
        found = await stage.driver.discover()
        assert [gpu.uuid for gpu in found.gpus] == stage.uuids
        assert [gpu.index for gpu in found.gpus] == [gpu.minor for gpu in found.gpus] == [0, 1, 2, 3]
        first, last = found.gpus[0], found.gpus[3]
        assert (first.model, first.compute_capability, first.architecture) == ("NVIDIA L40S", "8.9", "ada")
        assert (last.model, last.compute_capability, last.architecture) == ("NVIDIA A100-SXM4-80GB", "8.0", "ampere")
        assert (first.memory_total_mib, first.memory_reserved_mib, first.memory_usable_mib) == (46068, 593, 45475)
        assert (first.numa_node, last.numa_node, first.mig_enabled) == (0, 1, False)
        assert len({gpu.pci_bus_id for gpu in found.gpus}) == 4
        assert (found.driver.driver_version, found.driver.cuda_version) == ("580.65.06", "13.0")
        assert found.problems == ()

    async def test_links_are_symmetric_and_complete(self, stage: Stage) -> None:
        """Each GPU says how it reaches each other one, and both ends say the same."""
        gpus = {gpu.uuid: gpu for gpu in (await stage.driver.discover()).gpus}
        for uuid, gpu in gpus.items():
            assert set(gpu.links) == set(gpus) - {uuid}
            assert all(gpus[other].links[uuid] == kind for other, kind in gpu.links.items())
        assert gpus[stage.uuids[0]].links[stage.uuids[1]] == "NODE"
        assert gpus[stage.uuids[0]].links[stage.uuids[2]] == "SYS"

    async def test_idle_gpus_use_nothing(self, stage: Stage) -> None:
        """A GPU without processes uses no memory: the driver's own share is not counted as anybody's."""
        usage = await stage.driver.usage()
        assert [gpu.uuid for gpu in usage] == stage.uuids
        assert [(gpu.memory_used_mib, gpu.processes) for gpu in usage] == [(0, ())] * 4
        assert all(gpu.temperature_celsius and gpu.power_watts for gpu in usage)

    async def test_processes_are_seen_while_they_run(self, stage: Stage) -> None:
        """A process is listed with its memory, compute and kind on its GPU only, and is gone when it has ended."""
        stage.hands.start_process(gpu=1, pid=77, memory_mib=8000, sm_percent=35, kind=ProcessKind.COMPUTE)
        stage.hands.start_process(gpu=1, pid=78, memory_mib=500, sm_percent=0, kind=ProcessKind.MPS)
        usage = await stage.driver.usage()
        assert usage[1].memory_used_mib == 8500
        assert usage[1].processes == (
            GpuProcess(pid=77, memory_mib=8000, sm_percent=35, kind=ProcessKind.COMPUTE),
            GpuProcess(pid=78, memory_mib=500, sm_percent=0, kind=ProcessKind.MPS),
        )
        assert usage[0].processes == usage[2].processes == ()
        stage.hands.stop_process(pid=77)
        assert [process.pid for process in (await stage.driver.usage())[1].processes] == [78]

    async def test_hidden_memory_is_none(self, stage: Stage) -> None:
        """Memory that the driver hides is None, never a number."""
        stage.hands.start_process(gpu=0, pid=5, memory_mib=None, sm_percent=10, kind=ProcessKind.COMPUTE)
        assert (await stage.driver.usage())[0].processes[0].memory_mib is None

    async def test_an_xid_arrives_with_its_gpu(self, stage: Stage) -> None:
        """An XID that is raised while somebody waits is heard once, with GPU and number."""
        await stage.driver.discover()
        assert await stage.driver.events(timeout_s=0.05) == []
        stage.hands.raise_xid(gpu=2, number=79)
        heard = await stage.driver.events(timeout_s=LONG_S)
        assert [(event.kind, event.uuid, event.number) for event in heard] == [(EventKind.XID, stage.uuids[2], 79)]
        assert await stage.driver.events(timeout_s=0.05) == []

    async def test_waiting_for_events_does_not_delay_queries(self, stage: Stage) -> None:
        """Usage is answered while a wait for events is going on."""
        await stage.driver.discover()
        waiting = asyncio.ensure_future(stage.driver.events(timeout_s=LONG_S))
        await asyncio.sleep(0)
        assert len(await stage.driver.usage()) == 4
        assert not waiting.done()
        stage.hands.raise_xid(gpu=0, number=31)
        assert [event.number for event in await waiting] == [31]

    async def test_a_lost_gpu_leaves_the_others_alone(self, stage: Stage) -> None:
        """A lost GPU is an event and a problem with its uuid; the other three answer as before."""
        await stage.driver.discover()
        stage.hands.lose(gpu=1)
        assert [gpu.uuid for gpu in await stage.driver.usage()] == [u for u in stage.uuids if u != stage.uuids[1]]
        heard = await stage.driver.events(timeout_s=LONG_S)
        assert [(event.kind, event.uuid) for event in heard] == [(EventKind.LOST, stage.uuids[1])]
        found = await stage.driver.discover()
        assert len(found.gpus) == 3
        assert [(problem.fault, problem.uuid) for problem in found.problems] == [(Fault.LOST, stage.uuids[1])]
        assert found.problems[0].remedy

    async def test_a_loss_is_heard_without_asking(self, stage: Stage) -> None:
        """Somebody who only waits for events hears of a lost GPU, and of the others' XIDs after that."""
        await stage.driver.discover()
        stage.hands.lose(gpu=0)
        await events_until(stage.driver, _only(EventKind.LOST, stage.uuids[0]))
        stage.hands.raise_xid(gpu=3, number=48)
        heard = await events_until(stage.driver, lambda event: event.number == 48)
        assert heard[-1].uuid == stage.uuids[3]

    async def test_a_lost_gpu_comes_back(self, stage: Stage) -> None:
        """After recovery it is discovered again, an event says so once, and its XIDs are heard again."""
        await stage.driver.discover()
        stage.hands.lose(gpu=1)
        await stage.driver.usage()
        stage.hands.recover(gpu=1)
        found = await stage.driver.discover()
        assert ([gpu.uuid for gpu in found.gpus], found.problems) == (stage.uuids, ())
        heard = await stage.driver.events(timeout_s=LONG_S)
        assert [event.kind for event in heard] == [EventKind.LOST, EventKind.RECOVERED]
        stage.hands.raise_xid(gpu=1, number=13)
        await events_until(stage.driver, lambda event: event.number == 13)
        assert len(await stage.driver.usage()) == 4

    async def test_a_hanging_gpu_is_silent_and_the_others_answer(self, stage: Stage) -> None:
        """A GPU whose calls hang is left out after the deadline, XIDs still come through, and it recovers."""
        await stage.driver.discover()
        stage.hands.hang(gpu=2)
        for _ in range(2):
            assert [gpu.uuid for gpu in await stage.driver.usage()] == [u for u in stage.uuids if u != stage.uuids[2]]
        heard = await stage.driver.events(timeout_s=LONG_S)
        assert [(event.kind, event.uuid) for event in heard] == [(EventKind.SILENT, stage.uuids[2])]
        stage.hands.raise_xid(gpu=2, number=62)
        await events_until(stage.driver, lambda event: event.number == 62)
        found = await stage.driver.discover()
        assert [(problem.fault, problem.uuid) for problem in found.problems] == [(Fault.SILENT, stage.uuids[2])]
        stage.hands.unhang()
        heard = []
        while len(await stage.driver.usage()) < 4:
            heard += await stage.driver.events(timeout_s=0.01)
        heard += await stage.driver.events(timeout_s=0)
        assert [(event.kind, event.uuid) for event in heard] == [(EventKind.RECOVERED, stage.uuids[2])]

    async def test_no_driver_is_named(self, stage: Stage) -> None:
        """Without a driver the error says so and what to do."""
        stage.hands.remove_driver()
        with pytest.raises(DriverMissingError) as caught:
            await stage.driver.discover()
        assert caught.value.remedy

    async def test_a_mismatch_is_named(self, stage: Stage) -> None:
        """A driver and library of different versions are called that, and the remedy names the reboot."""
        stage.hands.mismatch_driver()
        with pytest.raises(DriverMismatchError, match="mismatch") as caught:
            await stage.driver.discover()
        assert "reboot" in caught.value.remedy

    async def test_close_is_final_and_may_be_repeated(self, stage: Stage) -> None:
        """After close nothing is answered; a second close does nothing."""
        await stage.driver.discover()
        await stage.driver.close()
        await stage.driver.close()
        with pytest.raises(DriverClosedError):
            await stage.driver.usage()
