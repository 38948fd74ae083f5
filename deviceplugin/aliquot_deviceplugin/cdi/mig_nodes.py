"""The device nodes that open an instance of MIG, beside its card's own.

One is for the GPU instance, one for the compute instance. Who has the card's node alone can open no instance, and who
has these two opens no other.

The driver says in one file which number each of them has, of all instances that could be made.
"""

from __future__ import annotations

import re

from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.node_files import NodeFiles

MINORS = "/proc/driver/nvidia-caps/mig-minors"
CAP_NODE = "/dev/nvidia-caps/nvidia-cap"
# 32 cards of 15 instances with 8 compute instances each take 120 kB.
_LARGEST = 1024 * 1024
_LINE = re.compile(r"gpu(?P<gpu>[0-9]+)/gi(?P<gi>[0-9]+)(/ci(?P<ci>[0-9]+))?/access (?P<number>[0-9]+)")


def cap_nodes(files: NodeFiles, gpu: DriverGpu) -> tuple[str, ...]:
    """The paths, if this is an instance; nothing for a whole GPU."""
    if gpu.instance is None:
        return ()
    gpu_instance, compute_instance = gpu.instance
    numbers = _numbers(files, gpu=gpu.minor)
    found = [numbers.get((gpu_instance, None)), numbers.get((gpu_instance, compute_instance))]
    if None in found:
        raise _unknown(f"does not name GPU instance {gpu_instance} and compute instance {compute_instance} of it", gpu)
    return tuple(f"{CAP_NODE}{number}" for number in found)


def _numbers(files: NodeFiles, *, gpu: int | None) -> dict[tuple[int, int | None], int]:
    """Of one card, by GPU instance and compute instance."""
    try:
        text = files.read(MINORS, limit=_LARGEST).decode(errors="replace")
    except OSError as error:
        raise DriverFilesError(
            error.strerror or str(error),
            where=MINORS,
            remedy="load the driver's modules (nvidia-modprobe), and let the agent see the node's /proc",
        ) from error
    lines = (match for line in text.splitlines() if (match := _LINE.fullmatch(line.strip())))
    return {
        (int(match["gi"]), int(match["ci"]) if match["ci"] else None): int(match["number"])
        for match in lines
        if int(match["gpu"]) == gpu
    }


def _unknown(what: str, gpu: DriverGpu) -> DriverFilesError:
    return DriverFilesError(
        f"{what}, so the instance's device nodes are unknown",
        where=f"{MINORS}, GPU {gpu.uuid} (minor {gpu.minor})",
        remedy="look whether the instance is still there (nvidia-smi -L)",
    )
