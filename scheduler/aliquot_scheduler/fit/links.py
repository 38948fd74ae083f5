"""How well two GPUs of a node reach each other: NVLinks by their number, then by the distance over PCIe.

Where no distance is told, GPUs of one NUMA node count as one would that names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot_core.inventory import Gpu

# As nvidia-smi names them, from next door to the other socket. One NVLink beats them all.
_DISTANCES = {"SYS": 0, "NODE": 1, "PHB": 2, "PXB": 3, "PIX": 4, "PSB": 5}
_NVLINK = 10


def closeness(one: Gpu, other: Gpu) -> int:
    """The larger the closer; what is not known counts as far."""
    link = one.links.get(other.uuid) or other.links.get(one.uuid, "")
    if link.startswith("NV") and link[2:].isdigit():
        return _NVLINK + int(link[2:])
    if link in _DISTANCES:
        return _DISTANCES[link]
    return _DISTANCES["NODE" if one.numa is not None and one.numa == other.numa else "SYS"]


def islands(gpus: Sequence[Gpu]) -> list[tuple[str, ...]]:
    """The uuids of GPUs that reach each other over NVLinks alone, if need be by way of others; each GPU in one."""
    found: list[tuple[str, ...]] = []
    left = list(gpus)
    while left:
        island = [left.pop(0)]
        for reached in island:
            near = [other for other in left if closeness(reached, other) > _NVLINK]
            left = [other for other in left if other not in near]
            island += near
        found.append(tuple(gpu.uuid for gpu in sorted(island, key=lambda gpu: gpu.index)))
    return found
