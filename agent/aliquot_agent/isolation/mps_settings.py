"""The settings of the process that keeps MPS daemons."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aliquot_core.settings import MountedPath


class MpsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[mps]`."""

    # Where it meets the agent, and where daemons listen: [agent] mps_folder must be the same.
    folder: MountedPath = "/run/aliquot/mps"
    # NVIDIA's program, which comes with the driver: a path, or a name to be found on PATH.
    program: Annotated[str, msgspec.Meta(min_length=1)] = "nvidia-cuda-mps-control"
    # One server for pods of all users. Without it MPS serves one user at a time, and pods of others wait; drivers from
    # before CUDA 12 do not know it.
    multi_user: bool = True
    # Processes, not containers, that one GPU's daemon takes.
    most_clients: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 48
