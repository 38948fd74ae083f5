"""Section `[up]` of the settings."""

from __future__ import annotations

from typing import Annotated

import msgspec

from aliquot_core.settings import of_kind

# Each costs two processes and some 100 MiB.
MOST_FULL = 4
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


def _check_gpus(text: str) -> None:
    if not text:
        return
    # Nothing else of the agent is needed by commands that only want to know the folder.
    from aliquot_agent.gpus.spec import parse_gpu_spec  # noqa: PLC0415 - for the reason above
    from aliquot_agent.settings import NVML  # noqa: PLC0415 - the same

    if text != NVML:
        parse_gpu_spec(text)


class UpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Section `[up]`; the commands beside `aliquot up` read the folder too."""

    # Empty: $ALIQUOT_HOME, else `aliquot` in the user's state folder.
    folder: str = ""
    # Empty: as at the last time, else this machine's GPUs, else some that are simulated. "nvml", or what to simulate.
    gpus: Annotated[str, of_kind(_check_gpus)] = ""
    # So many of the simulated nodes have a kubelet, endpoint and agent of their own, and run pods' commands.
    full: Annotated[int, msgspec.Meta(ge=0, le=MOST_FULL)] = 1
    # None: the usual port if it is free, else any; 0: any.
    port: Port | None = None
    page_port: Port | None = None
