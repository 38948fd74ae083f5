"""Reads what a GPU is, and how it reaches the others. Runs on the NVML thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pynvml

from aliquot_agent.gpus.model import DriverFacts, GpuFacts, grantable_memory
from aliquot_agent.gpus.nvml_binding import Binding, Device

_ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
_BY_CAPABILITY = {"3": "kepler", "5": "maxwell", "6": "pascal", "7": "volta", "8": "ampere", "9": "hopper"}
# nvidia-smi's words for PCIe distance, by NVML's level.
_DISTANCES = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_SWITCH = "switch"
# Past its last link a GPU answers "invalid" or "not supported", by driver version; "not supported" is not remembered
# for the function, because the links before it do answer.
_NO_SUCH_LINK = frozenset(
    {pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
)
# 1024 NUMA nodes, as the kernel has them at most.
_NUMA_WORDS = 16


def read_driver(binding: Binding) -> DriverFacts:
    """Read the versions."""
    cuda = int(binding.system("nvmlSystemGetCudaDriverVersion_v2"))
    return DriverFacts(
        driver_version=binding.system("nvmlSystemGetDriverVersion"),
        nvml_version=binding.system("nvmlSystemGetNVMLVersion"),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
    )


def read_facts(binding: Binding, device: Device, *, index: int) -> GpuFacts:
    """Read all about one GPU but its links."""
    handle, where = device.handle, device.where
    total, reserved = read_size(binding, device)
    major, minor = binding.must("nvmlDeviceGetCudaComputeCapability", handle, where=where)
    total_mib, reserved_mib = grantable_memory(total_bytes=total, reserved_bytes=reserved)
    mig, mig_wanted = binding.may("nvmlDeviceGetMigMode", device=device) or (0, 0)
    return GpuFacts(
        uuid=device.uuid,
        index=index,
        minor=binding.must("nvmlDeviceGetMinorNumber", handle, where=where),
        model=binding.must("nvmlDeviceGetName", handle, where=where),
        memory_total_mib=total_mib,
        memory_reserved_mib=reserved_mib,
        compute_capability=f"{major}.{minor}",
        architecture=_architecture(binding, device, capability=f"{major}.{minor}"),
        pci_bus_id=binding.must("nvmlDeviceGetPciInfo_v3", handle, where=where).busId,
        numa_node=_numa_node(binding, device),
        mig_enabled=bool(mig),
        mig_wanted=bool(mig_wanted),
    )


def read_size(binding: Binding, device: Device) -> tuple[int, int]:
    """Bytes in all and bytes that the driver keeps; a driver before r510 does not tell the second: 0."""
    if (memory := binding.may("nvmlDeviceGetMemoryInfo", device=device, arguments=(pynvml.nvmlMemory_v2,))) is not None:
        return memory.total, memory.reserved
    # The same pynvml function asks for version 1 by another symbol.
    return binding.must("nvmlDeviceGetMemoryInfo", device.handle, where=device.where).total, 0


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How far one GPU's arms reach: NVLinks by the PCI bus id at their other end, PCIe distances by uuid."""

    nvlinks: dict[str, int]
    distances: dict[str, str]


def read_reach(binding: Binding, device: Device, *, others: Iterable[Device]) -> Reach:
    """Read how this GPU reaches the others."""
    return Reach(
        nvlinks=_count_nvlinks(binding, device),
        distances={other.uuid: _distance(binding, device, other) for other in others},
    )


def join_links(reaches: Mapping[str, Reach], *, bus_ids: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Tell for each GPU how it reaches each other one; a switch joins two as far as both have links into it."""
    return {
        uuid: {
            other: f"NV{count}" if (count := _nvlinks_between(mine, theirs, bus_id=bus_ids[other])) else distance
            for other, distance in mine.distances.items()
            if (theirs := reaches.get(other)) is not None
        }
        for uuid, mine in reaches.items()
    }


def _nvlinks_between(mine: Reach, theirs: Reach, *, bus_id: str) -> int:
    return mine.nvlinks.get(bus_id.upper()) or min(mine.nvlinks.get(_SWITCH, 0), theirs.nvlinks.get(_SWITCH, 0))


def _architecture(binding: Binding, device: Device, *, capability: str) -> str:
    number = binding.may("nvmlDeviceGetArchitecture", device=device)
    if number is None:
        special = {"7.5": "turing", "8.9": "ada"}
        return special.get(capability) or _BY_CAPABILITY.get(capability.partition(".")[0], "unknown")
    return _ARCHITECTURES.get(number, f"architecture-{number}")


def _numa_node(binding: Binding, device: Device) -> int | None:
    # nvmlDeviceGetNumaNodeId is about something else: the node that the GPU's own memory is, on coherent machines.
    words = binding.may(
        "nvmlDeviceGetMemoryAffinity", device=device, arguments=(_NUMA_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)
    )
    mask = sum(int(word) << 64 * place for place, word in enumerate(words or ()))
    # Several near nodes are no answer: a topology hint needs one.
    return mask.bit_length() - 1 if mask.bit_count() == 1 else None


def _count_nvlinks(binding: Binding, device: Device) -> dict[str, int]:
    """Active NVLinks by the PCI bus id they lead to, those into a switch under its own name."""
    found: Counter[str] = Counter()
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = _ask_link(binding, device, "nvmlDeviceGetNvLinkState", number)
        if active is None:
            break
        if active:
            found[_far_end(binding, device, number)] += 1
    return found


def _far_end(binding: Binding, device: Device, number: int) -> str:
    kind = _ask_link(binding, device, "nvmlDeviceGetNvLinkRemoteDeviceType", number)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return _SWITCH
    remote = _ask_link(binding, device, "nvmlDeviceGetNvLinkRemotePciInfo", number)
    return str(remote.busId).upper() if remote is not None else ""


def _ask_link(binding: Binding, device: Device, name: str, number: int) -> Any:
    return binding.unless(_NO_SUCH_LINK, name, device.handle, number, where=device.where)


def _distance(binding: Binding, device: Device, other: Device) -> str:
    level = binding.may("nvmlDeviceGetTopologyCommonAncestor", device=device, arguments=(other.handle,))
    return _DISTANCES.get(level, "SYS")
