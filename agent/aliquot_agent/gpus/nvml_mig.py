"""Reads the instances of a GPU in MIG mode: each as a GPU of its own, with what it has of the card. On the NVML thread.

A handle of MIG stands for a compute instance; its memory and its slices are those of the GPU instance round it.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec
import pynvml

from aliquot_agent.gpus.driver import GpuFailedError
from aliquot_agent.gpus.model import GpuFacts, InstanceFacts, grantable_memory
from aliquot_agent.gpus.nvml_binding import Binding, Device
from aliquot_agent.gpus.nvml_facts import read_size

# A number under which no instance was made; a kind of instance that the card can't be cut into.
_NONE_THERE = frozenset({pynvml.NVML_ERROR_NOT_FOUND})
_NO_SUCH_KIND = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT})
# Of the two layouts of the answer, the one that every driver with MIG knows.
_LAYOUT = 1
_MIB_OF_GIB = 1024


def read_instances(binding: Binding, card: Device, *, facts: GpuFacts) -> list[tuple[Device, GpuFacts]]:
    """Every instance with its handle; `facts` are the card's."""
    numbers = range(binding.must("nvmlDeviceGetMaxMigDeviceCount", card.handle, where=card.where))
    handles = [_handle(binding, card, number) for number in numbers]
    there = [handle for handle in handles if handle is not None]
    of_card = _slices(binding, card) if there else 0
    return [_instance(binding, card, handle, facts=facts, of_card=of_card) for handle in there]


def _handle(binding: Binding, card: Device, number: int) -> Any:
    return binding.unless(_NONE_THERE, "nvmlDeviceGetMigDeviceHandleByIndex", card.handle, number, where=card.where)


def _slices(binding: Binding, card: Device) -> int:
    """Into how many slices the card's compute is cut: as many as its largest instance has."""
    kinds = (
        binding.unless(
            _NO_SUCH_KIND, "nvmlDeviceGetGpuInstanceProfileInfo", card.handle, kind, _LAYOUT, where=card.where
        )
        for kind in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    )
    if most := max((int(kind.sliceCount) for kind in kinds if kind is not None), default=0):
        return most
    raise GpuFailedError(
        "the driver tells of no instance that the GPU could be cut into, so what its instances are of it is unknown",
        where=card.where,
        remedy="look at `nvidia-smi mig -lgip`: if that lists none either, switch MIG off and on again",
    )


def _instance(binding: Binding, card: Device, handle: Any, *, facts: GpuFacts, of_card: int) -> tuple[Device, GpuFacts]:
    uuid = binding.must("nvmlDeviceGetUUID", handle, where=card.where)
    device = Device(handle=handle, uuid=uuid, where=f"{card.where}, instance {uuid}")
    slices = binding.must("nvmlDeviceGetAttributes_v2", handle, where=device.where)
    total, reserved = read_size(binding, device)
    total_mib, reserved_mib = grantable_memory(total_bytes=total, reserved_bytes=reserved)
    instance = InstanceFacts(
        parent=card.uuid,
        gpu_instance=binding.must("nvmlDeviceGetGpuInstanceId", handle, where=device.where),
        compute_instance=binding.must("nvmlDeviceGetComputeInstanceId", handle, where=device.where),
        # Should a driver count the slices of memory in, nothing is more than its card.
        of_card=max(of_card, int(slices.gpuInstanceSliceCount)),
        slices=int(slices.gpuInstanceSliceCount),
        used_slices=int(slices.computeInstanceSliceCount),
    )
    told = msgspec.structs.replace(
        facts,
        uuid=uuid,
        model=_model(binding, device, card=facts.model, slices=slices),
        memory_total_mib=total_mib,
        memory_reserved_mib=reserved_mib,
        mig_enabled=False,
        mig_wanted=False,
        links={},
        instance=instance,
    )
    return device, told


def _model(binding: Binding, device: Device, *, card: str, slices: Any) -> str:
    """`NVIDIA A100-SXM4-80GB MIG 1g.10gb`; a driver that names the card alone is helped."""
    name = str(binding.must("nvmlDeviceGetName", device.handle, where=device.where))
    size = ceil(slices.memorySizeMB / _MIB_OF_GIB)
    return name if " MIG " in name else f"{card} MIG {slices.gpuInstanceSliceCount}g.{size}gb"
