"""The edits that put the interposer in the place of the driver's libcuda, and of its NVML. Pure.

Whatever name leads to the driver's library in a container (libcuda.so, libcuda.so.1, its version's) ends at one file
that is mounted, by NVIDIA's spec or by ours. That file becomes the interposer, and the driver's is mounted where only
the interposer looks: so no variable of the environment has a part in it. NVML likewise, where both sides have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from aliquot_deviceplugin.cdi.errors import SliceSpecError
from aliquot_deviceplugin.cdi.spec import ContainerEdits, Mount

# isolation/places.c has the same.
INSIDE = "/run/aliquot/isolation"
DRIVER_INSIDE = f"{INSIDE}/driver/libcuda.so"
# isolation/Makefile has the same.
NVML_INSIDE = f"{INSIDE}/driver/libnvidia-ml.so"
_NVML = re.compile(r"libnvidia-ml\.so(\.[0-9.]+)?")
_CUDA = re.compile(r"libcuda\.so(\.[0-9.]+)?")
_NO_CUDA = "the driver's libcuda is not among the files that are mounted"
_FIND_IT = "look for libcuda.so in the node's NVIDIA CDI spec, or set [agent] isolation to observe"
_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_WRITABLE = ("rw", "nosuid", "nodev", "rbind", "rprivate")


def lacks_cuda(edits: ContainerEdits) -> str:
    """Say that there is nothing to stand in front of, if so."""
    return "" if any(_is_cuda(mount) for mount in edits.mounts) else f"{_NO_CUDA}: {_FIND_IT}"


def interposer_edits(
    driver: Iterable[ContainerEdits], *, library: str, limits: str, account: str, nvml: str = ""
) -> ContainerEdits:
    """What comes after the driver's edits; all paths are the host's. `nvml` is empty where we have none."""
    mounts = [mount for edits in driver for mount in edits.mounts]
    found = [mount for mount in mounts if _is_cuda(mount)]
    if not found:
        raise SliceSpecError(_NO_CUDA, where="interposer", remedy=_FIND_IT)
    ours = [msgspec.structs.replace(mount, host_path=library) for mount in found]
    own = [
        msgspec.structs.replace(found[-1], container_path=DRIVER_INSIDE),
        Mount(host_path=limits, container_path=f"{INSIDE}/limits", options=_READ_ONLY),
        Mount(host_path=account, container_path=f"{INSIDE}/account", options=_WRITABLE),
    ]
    return ContainerEdits(mounts=(*ours, *own, *(_in_front_of_nvml(mounts, ours=nvml) if nvml else ())))


def _in_front_of_nvml(mounts: Iterable[Mount], *, ours: str) -> list[Mount]:
    found = [mount for mount in mounts if _NVML.fullmatch(mount.container_path.rpartition("/")[2])]
    front = [msgspec.structs.replace(mount, host_path=ours) for mount in found]
    return [*front, *(msgspec.structs.replace(mount, container_path=NVML_INSIDE) for mount in found[-1:])]


def _is_cuda(mount: Mount) -> bool:
    return _CUDA.fullmatch(mount.container_path.rpartition("/")[2]) is not None
