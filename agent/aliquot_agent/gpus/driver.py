"""The one door to the GPUs of a node, and what can go wrong behind it.

Errors about the driver as a whole are raised. Trouble of a single GPU is never raised: it is a `GpuProblem` in the
discovery and a `GpuEvent`, and the other GPUs are answered for as if nothing had happened.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from aliquot_agent.gpus.model import Discovery, Fault, GpuEvent, GpuProblem, GpuUsage
from aliquot_core.errors import ClusterError, DefectError


class GpuDriver(Protocol):
    """GPUs as the agent sees them; the real and the simulated side pass the same tests."""

    async def discover(self) -> Discovery:
        """Look at the driver and all GPUs afresh; lost ones are tried again here."""
        ...

    async def usage(self) -> tuple[GpuUsage, ...]:
        """Say what each GPU does; one that does not answer is missing, and an event says why."""
        ...

    async def events(self, *, timeout_s: float) -> list[GpuEvent]:
        """Wait for something to happen, at most so long; empty if nothing did."""
        ...

    async def close(self) -> None:
        """Let go of the driver; calling it again does nothing."""
        ...


class GpuDriverError(ClusterError):
    """The root of what can be wrong with a driver; none of its GPUs can be spoken for."""

    # In one word, for metrics.
    kind: ClassVar[str] = "failed"


class DriverMissingError(GpuDriverError):
    """There is no driver to talk to."""

    kind = "missing"


class DriverMismatchError(GpuDriverError):
    """The kernel's half of the driver and the library are of different versions."""

    kind = "mismatch"


class NoGpuError(GpuDriverError):
    """The driver works and has no GPU."""

    kind = "no-gpu"


class DriverFailedError(GpuDriverError):
    """The driver refuses a call that is not about one GPU."""


class DriverSilentError(GpuDriverError):
    """The driver does not answer in time."""

    kind = "silent"


class DriverClosedError(DefectError):
    """Somebody used a driver that was closed, or one from before a fork."""


class OneGpuError(ClusterError):
    """One GPU's trouble, on its way to becoming a `GpuProblem`; callers of the door never meet it."""

    trouble: ClassVar[Fault] = Fault.FAILED

    def problem(self, *, uuid: str | None, index: int | None) -> GpuProblem:
        """Hand it on as a fact."""
        return GpuProblem(fault=self.trouble, uuid=uuid, index=index, what=self.what, remedy=self.remedy)


class GpuLostError(OneGpuError):
    """The GPU fell off the bus, or needs a reset."""

    trouble = Fault.LOST


class GpuSilentError(OneGpuError):
    """A call about the GPU did not come back in time."""

    trouble = Fault.SILENT


class GpuFailedError(OneGpuError):
    """The driver answers a call about the GPU with an error."""

    trouble = Fault.FAILED


def driver_missing(*, library: bool) -> DriverMissingError:
    """Say that there is no driver: its library is there and the kernel's half is not, or not even the library."""
    if library:
        what, remedy = "the NVIDIA kernel driver is not loaded", "load it (modprobe nvidia) and look at the kernel log"
    else:
        what = "libnvidia-ml.so.1 is not found"
        remedy = "install the NVIDIA driver, or let the node's driver libraries into the agent's container"
    return DriverMissingError(what, where="NVML", remedy=remedy)


def driver_mismatch() -> DriverMismatchError:
    """Say that a driver upgrade is half done."""
    return DriverMismatchError(
        "driver/library version mismatch: the loaded kernel module is not of the library's version",
        where="NVML",
        remedy="an upgrade is half done: drain the node, reboot it or reload the nvidia modules, restart the agent",
    )


def no_gpu(*, where: str) -> NoGpuError:
    """Say that there is nothing to share."""
    return NoGpuError(
        "the driver works but sees no GPU",
        where=where,
        remedy="check that the cards are seated and not bound to another driver (lspci -k), or run on another node",
    )


def gpu_lost(*, where: str) -> GpuLostError:
    """Say that a GPU fell off the bus."""
    return GpuLostError(
        "the GPU is lost: it fell off the bus or needs a reset",
        where=where,
        remedy="look for its XID in the kernel log, then reset it (nvidia-smi -r) or reboot the node",
    )


def gpu_silent(*, where: str, seconds: float) -> GpuSilentError:
    """Say that a GPU does not answer."""
    return GpuSilentError(
        f"the GPU did not answer within {seconds:g} s",
        where=where,
        remedy="look for its XID in the kernel log; it is asked again once the hanging call has come back",
    )
