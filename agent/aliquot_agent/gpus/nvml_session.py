"""NVML between its initialisation and its shutdown: handles, and what was last seen of each GPU.

Everything here runs on the NVML thread, one call at a time. Handles die with the shutdown, so the outside names GPUs by
uuid only.
"""

from __future__ import annotations

from collections.abc import Collection

from aliquot_agent.gpus.driver import gpu_lost
from aliquot_agent.gpus.model import DriverFacts, GpuFacts, GpuProblem, GpuUsage
from aliquot_agent.gpus.nvml_binding import Binding, Device
from aliquot_agent.gpus.nvml_events import EventSet, make_event_set
from aliquot_agent.gpus.nvml_facts import Reach, read_driver, read_facts, read_reach
from aliquot_agent.gpus.nvml_mig import read_instances
from aliquot_agent.gpus.nvml_usage import read_part_usage, read_usage


class NvmlSession:
    """NVML's state in this process; there can be one."""

    def __init__(self) -> None:
        self._binding = Binding()
        self._devices: dict[str, Device] = {}
        self._seen_until: dict[str, int] = {}
        # GPUs in MIG mode, with their instances as they were last.
        self._cut: dict[str, tuple[str, ...]] = {}
        self._open = False

    @property
    def is_open(self) -> bool:
        """Whether NVML is initialised; may be read from any thread."""
        return self._open

    def open(self) -> None:
        """Initialise NVML; nothing happens if it is so already."""
        if self._open:
            return
        self._binding.forget()
        self._binding.system("nvmlInit")
        self._open = True

    def close(self) -> None:
        """Shut NVML down; all handles die."""
        self._devices.clear()
        if self._open:
            self._open = False
            self._binding.system("nvmlShutdown")

    def forget(self) -> None:
        """Take in that somebody else shut NVML down."""
        self._open = False
        self._devices.clear()

    def system(self) -> tuple[DriverFacts, int]:
        """Read the driver's versions and the number of its GPUs."""
        return read_driver(self._binding), self._binding.system("nvmlDeviceGetCount")

    def look(self, *, index: int) -> GpuFacts:
        """Make a handle of the GPU at that index and read all but its links."""
        where = f"GPU {index}"
        handle = self._binding.must("nvmlDeviceGetHandleByIndex", index, where=where)
        uuid = self._binding.must("nvmlDeviceGetUUID", handle, where=where)
        device = Device(handle=handle, uuid=uuid, where=f"{where} ({uuid})")
        facts = read_facts(self._binding, device, index=index)
        self._devices[uuid] = device
        if facts.mig_enabled:
            # From now on: what is not known of its instances yet must not be told of the card.
            self._cut.setdefault(uuid, ())
        else:
            self._drop_instances(uuid)
        return facts

    def instances(self, *, facts: GpuFacts) -> tuple[GpuFacts, ...]:
        """Make handles of a GPU's instances and read what they are; those that were there before are forgotten."""
        found = read_instances(self._binding, self._device(facts.uuid), facts=facts)
        self._drop_instances(facts.uuid)
        self._cut[facts.uuid] = tuple(device.uuid for device, _ in found)
        self._devices |= {device.uuid: device for device, _ in found}
        return tuple(told for _, told in found)

    def reach(self, *, uuid: str, others: Collection[str]) -> Reach:
        """Read how a GPU reaches the others."""
        around = [self._device(other) for other in others]
        return read_reach(self._binding, self._device(uuid), others=around)

    def usage(self, *, uuid: str) -> GpuUsage:
        """Read what a GPU does, since the last time it was asked."""
        usage, self._seen_until[uuid] = read_usage(
            self._binding, self._device(uuid), seen_until=self._seen_until.get(uuid, 0), cut=uuid in self._cut
        )
        return usage

    def part_usage(self, *, uuid: str) -> GpuUsage:
        """Read what an instance does."""
        return read_part_usage(self._binding, self._device(uuid))

    def watch(self, *, indexes: dict[str, int]) -> tuple[EventSet | None, tuple[GpuProblem, ...]]:
        """Make a set of these GPUs' events; one that can't be watched is a problem of its own only."""
        devices = {uuid: device for uuid, device in self._devices.items() if uuid in indexes}
        return make_event_set(self._binding, devices, indexes=indexes)

    def _drop_instances(self, card: str) -> None:
        for uuid in self._cut.pop(card, ()):
            self._devices.pop(uuid, None)

    def _device(self, uuid: str) -> Device:
        if (device := self._devices.get(uuid)) is None:
            raise gpu_lost(where=uuid)
        return device
