"""GPUs that are not there: any number of any model, processes that use them, faults on command.

The same node name always has the same GPUs with the same uuids, and time is the clock that was handed in, so a whole
cluster of these runs in a deterministic simulation. A GPU that was told to be slow beyond the deadline is silent, as a
hanging one is behind NVML: its first caller waits out the deadline, later ones are not kept.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Sequence

import msgspec

from aliquot_agent.gpus.driver import DriverClosedError, GpuDriverError, OneGpuError, gpu_lost, gpu_silent, no_gpu
from aliquot_agent.gpus.event_book import EventBook
from aliquot_agent.gpus.known_models import KnownModel
from aliquot_agent.gpus.model import (
    Discovery,
    DriverFacts,
    EventKind,
    Fault,
    GpuEvent,
    GpuFacts,
    GpuProcess,
    GpuUsage,
    ProcessKind,
)
from aliquot_agent.gpus.simulated_parts import parts_of
from aliquot_core.clock import Clock
from aliquot_core.errors import UserError

DRIVER = DriverFacts(driver_version="580.65.06", nvml_version="13.580.65.06", cuda_version="13.0")
_NAMESPACE = uuids.UUID("5b6a4c0e-2f0b-4a53-9f0b-6f1c8a3f7d21")


class SimulationError(UserError):
    """A command to the simulated GPUs that real ones could not follow."""


def simulated_uuid(*, node: str, index: int) -> str:
    """Name a simulated GPU: the same one always has the same uuid."""
    return f"GPU-{uuids.uuid5(_NAMESPACE, f'{node}/{index}')}"


class SimulatedDriver:
    """A node's GPUs, simulated; the commands below change what the door's four calls say."""

    def __init__(self, *, node: str, models: Sequence[KnownModel], clock: Clock, deadline_s: float = 5.0) -> None:
        self._node = node
        self._clock = clock
        self._deadline_s = deadline_s
        self._facts = _lay_out(node=node, models=models)
        # By card, its instances.
        self._parts = {gpu.uuid: parts_of(gpu, model=model) for gpu, model in zip(self._facts, models, strict=True)}
        self._processes: dict[str, dict[int, GpuProcess]] = {gpu.uuid: {} for gpu in self._all()}
        self._slow: dict[str, float] = {}
        self._lost: set[str] = set()
        self._refusal: GpuDriverError | None = None
        self._closed = False
        self._book = EventBook(clock=clock)

    # ------------------------------------------------------------------ the door

    async def discover(self) -> Discovery:
        """Look at all GPUs afresh."""
        self._check()
        if not self._facts:
            raise no_gpu(where=self._node)
        gpus, problems = [], []
        for gpu in self._facts:
            if (trouble := await self._touch(gpu)) is None:
                gpus.append(gpu)
            else:
                problems.append(trouble.problem(uuid=gpu.uuid, index=gpu.index))
        parts = (part for gpu in gpus for part in self._parts[gpu.uuid])
        return Discovery(driver=DRIVER, gpus=(*gpus, *parts), problems=tuple(problems))

    async def usage(self) -> tuple[GpuUsage, ...]:
        """Say what each GPU that answers does."""
        self._check()
        there = [gpu for gpu in self._facts if await self._touch(gpu) is None]
        parts = (part for gpu in there for part in self._parts[gpu.uuid])
        return (*map(self._usage_of, there), *map(self._usage_of_part, parts))

    async def events(self, *, timeout_s: float) -> list[GpuEvent]:
        """Wait for something to happen, at most so long."""
        self._check()
        end = self._clock.monotonic() + timeout_s
        while self._book.empty and (left := end - self._clock.monotonic()) > 0:
            await self._book.wait(seconds=left)
        return self._book.take()

    async def close(self) -> None:
        """Let go of the GPUs."""
        self._closed = True

    # ------------------------------------------------------------------ commands

    def start_process(
        self,
        *,
        gpu: int,
        pid: int,
        memory_mib: int | None,
        sm_percent: int | None = 0,
        kind: ProcessKind = ProcessKind.COMPUTE,
        instance: int | None = None,
    ) -> None:
        """Let a process use a GPU, or change what it uses; what does not fit is refused, as the driver refuses it."""
        facts = self._facts[gpu] if instance is None else self._parts[self._facts[gpu].uuid][instance]
        others = [process for process in self._processes[facts.uuid].values() if process.pid != pid]
        free = facts.memory_usable_mib - _sum_memory(others)
        if (memory_mib or 0) > free:
            raise SimulationError(
                f"a process can't have {memory_mib} MiB", where=facts.uuid, remedy=f"{free} MiB are free"
            )
        self._processes[facts.uuid][pid] = GpuProcess(pid=pid, memory_mib=memory_mib, sm_percent=sm_percent, kind=kind)

    def place_of(self, uuid: str) -> tuple[int, int | None] | None:
        """By which index a GPU is named here, or by its card's and a number of its own an instance."""
        for gpu in self._facts:
            if gpu.uuid == uuid:
                return gpu.index, None
            for number, part in enumerate(self._parts[gpu.uuid]):
                if part.uuid == uuid:
                    return gpu.index, number
        return None

    def uuids_on(self, *, gpu: int) -> tuple[str, ...]:
        """A card's, and those of its instances."""
        card = self._facts[gpu].uuid
        return card, *(part.uuid for part in self._parts[card])

    def stop_process(self, *, pid: int) -> None:
        """End a process on every GPU that it uses."""
        for processes in self._processes.values():
            processes.pop(pid, None)

    def raise_xid(self, *, gpu: int, number: int) -> None:
        """Let the driver report an error of this GPU."""
        self._book.add(kind=EventKind.XID, uuid=self._facts[gpu].uuid, number=number)

    def lose(self, *, gpu: int) -> None:
        """Let a GPU fall off the bus, with every process on it."""
        facts = self._facts[gpu]
        self._lost.add(facts.uuid)
        for uuid in self.uuids_on(gpu=gpu):
            self._processes[uuid].clear()
        self._book.observe(uuid=facts.uuid, fault=Fault.LOST)

    def recover(self, *, gpu: int) -> None:
        """Let a lost GPU come back; it is noticed when it is looked for."""
        self._lost.discard(self._facts[gpu].uuid)

    def slow(self, *, gpu: int, seconds: float) -> None:
        """Let every call about this GPU take so long from now on; 0 for as fast as ever."""
        self._slow[self._facts[gpu].uuid] = seconds

    def refuse(self, error: GpuDriverError | None) -> None:
        """Let the driver as a whole fail with this error from now on; None for no more."""
        self._refusal = error

    # ------------------------------------------------------------------ inside

    def _check(self) -> None:
        if self._closed:
            raise DriverClosedError("the simulated driver is closed", where=self._node)
        if self._refusal is not None:
            raise self._refusal

    async def _touch(self, gpu: GpuFacts) -> OneGpuError | None:
        """Wait as long as a call about this GPU takes, and say what is the matter with it."""
        trouble = None if gpu.uuid in self._lost else await self._wait_for(gpu)
        if gpu.uuid in self._lost:
            trouble = gpu_lost(where=gpu.uuid)
        self._book.observe(uuid=gpu.uuid, fault=trouble.trouble if trouble else None)
        return trouble

    async def _wait_for(self, gpu: GpuFacts) -> OneGpuError | None:
        seconds = self._slow.get(gpu.uuid, 0.0)
        known_silent = self._book.presence.of(gpu.uuid) is Fault.SILENT
        if seconds > self._deadline_s:
            await self._clock.sleep(0.0 if known_silent else self._deadline_s)
            return gpu_silent(where=gpu.uuid, seconds=self._deadline_s)
        if seconds > 0:
            await self._clock.sleep(seconds)
        return None

    def _usage_of(self, gpu: GpuFacts) -> GpuUsage:
        processes = tuple(self._processes[gpu.uuid].values())
        parts = self._parts[gpu.uuid]
        held = [*processes, *(process for part in parts for process in self._processes[part.uuid].values())]
        busy = min(100, sum(process.sm_percent or 0 for process in held))
        return GpuUsage(
            uuid=gpu.uuid,
            memory_used_mib=_sum_memory(held),
            # In MIG mode a driver says what is hot, and not how busy anything is.
            utilization_percent=None if parts else busy,
            temperature_celsius=35 + busy // 3,
            power_watts=60.0 + 2.5 * busy,
            throttle_reasons=() if busy else ("idle",),
            processes=processes,
        )

    def _usage_of_part(self, part: GpuFacts) -> GpuUsage:
        processes = tuple(
            msgspec.structs.replace(process, sm_percent=None) for process in self._processes[part.uuid].values()
        )
        return GpuUsage(uuid=part.uuid, memory_used_mib=_sum_memory(processes), processes=processes)

    def _all(self) -> list[GpuFacts]:
        return [*self._facts, *(part for gpu in self._facts for part in self._parts[gpu.uuid])]


def _sum_memory(processes: Sequence[GpuProcess]) -> int:
    return sum(process.memory_mib or 0 for process in processes)


def _lay_out(*, node: str, models: Sequence[KnownModel]) -> tuple[GpuFacts, ...]:
    """Put the cards into a machine of two sockets, the first half of them on the first."""
    half = (len(models) + 1) // 2
    bare = [
        GpuFacts(
            uuid=simulated_uuid(node=node, index=index),
            index=index,
            minor=index,
            model=model.name,
            memory_total_mib=model.memory_total_mib,
            memory_reserved_mib=model.memory_reserved_mib,
            compute_capability=model.compute_capability,
            architecture=model.architecture,
            pci_bus_id=f"00000000:{0x10 + index:02X}:00.0",
            numa_node=index // half,
            mig_enabled=bool(model.instances),
            mig_wanted=bool(model.instances),
        )
        for index, model in enumerate(models)
    ]
    return tuple(
        msgspec.structs.replace(gpu, links=_links(gpu, bare, nvlinks=models[gpu.index].nvlinks, models=models))
        for gpu in bare
    )


def _links(gpu: GpuFacts, gpus: Sequence[GpuFacts], *, nvlinks: int, models: Sequence[KnownModel]) -> dict[str, str]:
    links = {}
    for other in gpus:
        shared = min(nvlinks, models[other.index].nvlinks)
        same_socket = "NODE" if other.numa_node == gpu.numa_node else "SYS"
        if other is not gpu:
            links[other.uuid] = f"NV{shared}" if shared else same_socket
    return links
