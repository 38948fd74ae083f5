"""What the agent knows of its GPUs: what they are, what they do now, what happened to them.

Plain facts in frozen structs, the same from the real driver and from the simulated one. Memory is in MiB: what can be
granted is rounded down, what is used is rounded up, so that no rounding ever promises memory that is not there.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

_MIB = 1024 * 1024


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of what drives the GPUs."""

    driver_version: str
    nvml_version: str
    cuda_version: str | None = None


class InstanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a GPU's facts those of an instance of MIG, in the driver's numbers."""

    # The card's uuid.
    parent: str
    gpu_instance: int
    compute_instance: int
    # Slices of compute: of the card, of the GPU instance, and of the compute instance inside that.
    of_card: int
    slices: int
    used_slices: int

    @property
    def compute(self) -> int:
        """Percent of the card's compute, rounded down: instances together are never more than the card."""
        return 100 * self.slices // self.of_card


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU is, or one instance of it; it changes only when somebody changes the hardware or its mode."""

    uuid: str
    # NVML's index: it may change with a reboot, so nothing is remembered by it.
    index: int
    # The number in /dev/nvidia<minor>.
    minor: int
    model: str
    memory_total_mib: int
    memory_reserved_mib: int
    compute_capability: str
    architecture: str
    pci_bus_id: str
    numa_node: int | None = None
    mig_enabled: bool = False
    # MIG mode as it will be once the GPU was reset.
    mig_wanted: bool = False
    # An instance has its card's index and minor.
    instance: InstanceFacts | None = None
    # How the others of the node are reached, by uuid, in nvidia-smi's words: "NV12" is twelve NVLinks, then by PCIe
    # distance "PSB" (same board), "PIX", "PXB", "PHB", "NODE", "SYS" (across sockets).
    links: dict[str, str] = {}

    @property
    def memory_usable_mib(self) -> int:
        """What can be granted."""
        return self.memory_total_mib - self.memory_reserved_mib


class Fault(StrEnum):
    """What can be the matter with one GPU, while the others go on."""

    LOST = "lost"  # fell off the bus, or needs a reset
    SILENT = "silent"  # a call did not come back in time
    FAILED = "failed"  # the driver answers, with an error
    UNWATCHED = "unwatched"  # it works, but its XIDs can't be heard


class GpuProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's trouble; the uuid is unknown if it was so from the start."""

    fault: Fault
    uuid: str | None
    index: int | None
    what: str
    remedy: str = ""


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """The driver, the GPUs that answer, and what is the matter with the rest."""

    driver: DriverFacts
    gpus: tuple[GpuFacts, ...] = ()
    problems: tuple[GpuProblem, ...] = ()


class ProcessKind(StrEnum):
    """How a process uses a GPU; an MPS client computes through the MPS server."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one GPU, by its pid on the host."""

    pid: int
    # None: the driver hides it, as it does from a process in a pid namespace of its own.
    memory_mib: int | None
    # None: this driver or mode does not say. Since the last look, or 0 if it did nothing.
    sm_percent: int | None
    kind: ProcessKind


class GpuUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU does now; None is what its driver does not tell."""

    uuid: str
    # What tenants hold: the driver's own share is not in it.
    memory_used_mib: int
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    # Why the clocks are not higher, `model.THROTTLE_REASONS`; None: the driver does not say.
    throttle_reasons: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] = ()


class EventKind(StrEnum):
    """What can happen to a GPU."""

    XID = "xid"  # the driver reports an error by number
    UNAVAILABLE = "unavailable"  # the driver says it can't be used
    RECOVERY_ACTION = "recovery-action"  # the driver says what it needs: number
    LOST = "lost"
    SILENT = "silent"
    FAILED = "failed"
    RECOVERED = "recovered"  # it answers again


class GpuEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened, to one GPU, or (uuid None) to one that the driver did not name."""

    kind: EventKind
    uuid: str | None
    number: int | None = None
    # Seconds since 1970, when we heard of it.
    at: float


# Bits of NVML's clocks event reasons, named; the order is that of the bits.
THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "application-clocks",
    0x004: "power-cap",
    0x008: "hardware-slowdown",
    0x010: "sync-boost",
    0x020: "software-thermal",
    0x040: "hardware-thermal",
    0x080: "power-brake",
    0x100: "display-clocks",
}


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Name the bits of NVML's mask; bits of a newer driver are left out."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if mask & bit)


def grantable_memory(*, total_bytes: int, reserved_bytes: int) -> tuple[int, int]:
    """Total and reserved in MiB, such that their difference is what is really usable, rounded down."""
    total_mib = total_bytes // _MIB
    return total_mib, total_mib - max(0, total_bytes - reserved_bytes) // _MIB


def used_memory(used_bytes: int) -> int:
    """MiB that this much takes up, rounded up."""
    return -(-max(0, used_bytes) // _MIB)
