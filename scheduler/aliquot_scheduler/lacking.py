"""Why GPUs do not offer the isolation that a pod asks for, as agents wrote it beside what they offer. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.isolation import admits
from aliquot_core.request import PodRequest


def lacks(inventory: Inventory, request: PodRequest) -> Iterator[str]:
    """Each reason once, of the GPUs that take none of the pod for their isolation and were told to offer more."""
    yield from dict.fromkeys(
        gpu.isolation_lack for gpu in inventory.gpus if gpu.isolation_lack and not _takes(gpu, request)
    )


def _takes(gpu: Gpu, request: PodRequest) -> bool:
    return all(admits(gpu.isolation, least=request.isolation, quality=quality) for quality in request.qualities)
