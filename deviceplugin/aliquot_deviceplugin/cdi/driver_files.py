"""What a container needs of the driver for one GPU: device nodes, libraries, hooks.

One door with three sides: the node's own NVIDIA CDI spec, what we find on the node ourselves, and the simulated
driver's set. A CDI device can't name another, so whoever composes a slice's spec copies these edits into it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aliquot_core.grant import ContainerGrant
from aliquot_core.inventory import Gpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.spec import ContainerEdits


class DriverGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU by the three names that the driver's files know it by; `minor` is the number in /dev/nvidia<minor>.

    An instance of MIG has index and minor of its card, and the driver's numbers of GPU instance and compute instance.
    """

    uuid: str
    index: int
    minor: int | None = None
    instance: tuple[int, int] | None = None

    @classmethod
    def of(cls, gpu: Gpu, *, minor: int | None = None) -> DriverGpu:
        """The same GPU as the inventory has it, which does not know minors."""
        one = gpu.instance
        numbers = (one.gpu_instance, one.compute_instance) if one else None
        return cls(uuid=gpu.uuid, index=gpu.index, minor=minor, instance=numbers)


class DriverFiles(Protocol):
    """Where a container's part of the driver comes from."""

    @property
    def source(self) -> str:
        """Where from, as people call it."""
        ...

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """All that a container needs for this GPU; raises DriverFilesError."""
        ...


class SimulatedDriverFiles:
    """The set of the simulated driver and the fake NVML: a mark in the environment, no file of the node."""

    source = "simulated driver"

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """A GPU that does not exist has no device node; the mark keeps anybody from taking it for a real one."""
        return ContainerEdits(env=(f"ALIQUOT_SIMULATED_GPU_{gpu.index}={gpu.uuid}",))


def edits_of_grant(
    grant: ContainerGrant, *, gpus: dict[str, DriverGpu], driver_files: DriverFiles
) -> dict[str, ContainerEdits]:
    """The edits for each GPU of a grant, by uuid."""
    found: dict[str, ContainerEdits] = {}
    for part in grant.slices:
        if (gpu := gpus.get(part.gpu)) is None:
            raise DriverFilesError(
                "the driver does not have this GPU",
                where=f"GPU {part.gpu}",
                remedy="look for a GPU that was lost or replaced since the grant was written",
            )
        found[part.gpu] = driver_files.edits_for(gpu)
    return found
