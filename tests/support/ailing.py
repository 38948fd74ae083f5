"""Two GPUs, and what the driver says of them."""

from __future__ import annotations

from aliquot_agent.gpus.model import Discovery, DriverFacts, EventKind, Fault, GpuEvent, GpuFacts, GpuProblem, GpuUsage
from aliquot_agent.health.ailments import Book
from aliquot_agent.health.judging import looked
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_core.names import Names

NAMES = Names()
A, B = "GPU-a", "GPU-b"
POLICY = policy(HealthSettings(), names=NAMES)
DRIVER = DriverFacts(driver_version="580.1", nvml_version="13")
HOT = ("hardware-thermal",)


def xid(number: int, uuid: str | None = A, at: float = 100.0) -> GpuEvent:
    """The driver reports an error."""
    return GpuEvent(kind=EventKind.XID, uuid=uuid, number=number, at=at)


def event(kind: EventKind, number: int | None = None, uuid: str = A) -> GpuEvent:
    """Something else that the driver says."""
    return GpuEvent(kind=kind, uuid=uuid, number=number, at=100.0)


def gpu(uuid: str) -> GpuFacts:
    """A GPU that answers."""
    return GpuFacts(
        uuid=uuid,
        index=0,
        minor=0,
        model="A100",
        memory_total_mib=81_920,
        memory_reserved_mib=600,
        compute_capability="8.0",
        architecture="ampere",
        pci_bus_id="0000:01:00.0",
    )


def look(book: Book, *answering: str, now: float = 200.0, **trouble: Fault) -> Book:
    """Ask the driver; `trouble` names GPUs by their last letter."""
    problems = tuple(
        GpuProblem(fault=fault, uuid=f"GPU-{name}", index=0, what=f"it is {fault}") for name, fault in trouble.items()
    )
    found = Discovery(driver=DRIVER, gpus=tuple(gpu(uuid) for uuid in answering), problems=problems)
    return looked(book, found, vanished=(), now=now)


def usage(*reasons: str, uuid: str = A) -> GpuUsage:
    """A sample."""
    return GpuUsage(uuid=uuid, memory_used_mib=0, throttle_reasons=reasons)
