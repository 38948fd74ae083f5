"""Reads what a GPU does now. Runs on the NVML thread; the arithmetic is pure and below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pynvml

from aliquot_agent.gpus.model import GpuProcess, GpuUsage, ProcessKind, throttle_reasons, used_memory
from aliquot_agent.gpus.nvml_binding import Binding, Device

# In the order of what is said of a process that is in several lists: an MPS client also computes.
_LISTS = (
    (ProcessKind.GRAPHICS, "nvmlDeviceGetGraphicsRunningProcesses"),
    (ProcessKind.COMPUTE, "nvmlDeviceGetComputeRunningProcesses"),
    (ProcessKind.MPS, "nvmlDeviceGetMPSComputeRunningProcesses"),
)
# With nothing new in its buffer the driver says NOT_FOUND; when its answer to "how many" is 0 with success, pynvml
# raises that success (0). Both mean: no process did anything since the last look.
_NO_SAMPLES = frozenset({0, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA})
# A list that a driver keeps of cards and not of their instances, such as that of graphics.
_NOT_OF_PARTS = frozenset({pynvml.NVML_ERROR_INVALID_ARGUMENT})
_WHOLE = 100


def read_usage(binding: Binding, device: Device, *, seen_until: int, cut: bool = False) -> tuple[GpuUsage, int]:
    """Read one GPU's usage since the sample of that time stamp (0: none yet); also return the newest time stamp.

    Of one that is `cut` into instances the processes are told by these.
    """
    samples = _read_samples(binding, device, seen_until=seen_until)
    rates = binding.may("nvmlDeviceGetUtilizationRates", device=device)
    power = binding.may("nvmlDeviceGetPowerUsage", device=device)
    reasons = binding.may(
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", device=device
    )
    usage = GpuUsage(
        uuid=device.uuid,
        memory_used_mib=used_memory(_read_used(binding, device)),
        utilization_percent=None if rates is None else int(rates.gpu),
        temperature_celsius=binding.may(
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetTemperature",
            device=device,
            arguments=(pynvml.NVML_TEMPERATURE_GPU,),
        ),
        power_watts=None if power is None else power / 1000,
        throttle_reasons=None if reasons is None else throttle_reasons(reasons),
        processes=()
        if cut
        else _read_processes(binding, device, sm=None if samples is None else sm_by_pid(samples, seen_until)),
    )
    return usage, max((sample.timeStamp for sample in samples or ()), default=seen_until)


def read_part_usage(binding: Binding, device: Device) -> GpuUsage:
    """Read what an instance of MIG does: its memory and its processes; all else the driver tells of cards alone."""
    return GpuUsage(
        uuid=device.uuid,
        memory_used_mib=used_memory(_read_used(binding, device)),
        processes=_read_processes(binding, device, sm=None, empty=_NOT_OF_PARTS),
    )


def sm_by_pid(samples: Iterable[Any], seen_until: int) -> dict[int, int]:
    """Each process's mean since the last look; at the first look its newest sample, for the buffer may be minutes old.

    Drivers are known to hand out samples that were seen before, of pid 0 or of more than 100 percent: dropped.
    """
    by_pid: dict[int, list[tuple[int, int]]] = {}
    for sample in samples:
        if sample.pid and sample.smUtil <= _WHOLE and sample.timeStamp > seen_until:
            by_pid.setdefault(sample.pid, []).append((sample.timeStamp, sample.smUtil))
    if seen_until == 0:
        return {pid: max(seen)[1] for pid, seen in by_pid.items()}
    return {pid: round(sum(percent for _, percent in seen) / len(seen)) for pid, seen in by_pid.items()}


def merge_processes(
    lists: Sequence[tuple[ProcessKind, Sequence[Any]]], *, sm: Mapping[int, int] | None
) -> tuple[GpuProcess, ...]:
    """Make one entry per process of the driver's lists, the last list's word on its kind standing."""
    found: dict[int, GpuProcess] = {}
    for kind, entries in lists:
        for entry in entries:
            before = found.get(entry.pid)
            found[entry.pid] = GpuProcess(
                pid=entry.pid,
                memory_mib=_more(before.memory_mib if before else None, entry.usedGpuMemory),
                sm_percent=None if sm is None else sm.get(entry.pid, 0),
                kind=kind,
            )
    return tuple(found[pid] for pid in sorted(found))


def _more(before_mib: int | None, memory_bytes: int | None) -> int | None:
    if memory_bytes is None:
        return before_mib
    return max(before_mib or 0, used_memory(memory_bytes))


def _read_used(binding: Binding, device: Device) -> int:
    # Drivers differ in whether `used` of version 2 includes the reserved part (r525 says it does, r590 no more);
    # total, reserved and free mean the same everywhere.
    memory = binding.may("nvmlDeviceGetMemoryInfo", device=device, arguments=(pynvml.nvmlMemory_v2,))
    if memory is not None:
        return int(memory.total - memory.reserved - memory.free)
    memory = binding.must("nvmlDeviceGetMemoryInfo", device.handle, where=device.where)
    return int(memory.total - memory.free)


def _read_processes(
    binding: Binding, device: Device, *, sm: Mapping[int, int] | None, empty: Collection[int] = ()
) -> tuple[GpuProcess, ...]:
    lists = [(kind, binding.may(f"{name}_v3", f"{name}_v2", device=device, empty=empty) or ()) for kind, name in _LISTS]
    return merge_processes(lists, sm=sm)


def _read_samples(binding: Binding, device: Device, *, seen_until: int) -> Sequence[Any] | None:
    """Return the samples since then; None if this GPU or driver has none to give, as in MIG mode."""
    samples = binding.may("nvmlDeviceGetProcessUtilization", device=device, arguments=(seen_until,), empty=_NO_SAMPLES)
    return None if samples is None else list(samples)
