"""How a node's agent comes to its modes of isolation: settings, the interposer's files and the driver's, together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from aliquot_agent.gpus.model import GpuFacts
from aliquot_agent.isolation.accounts_room import Filling, RoomError, is_bounded, make_room, take_room_away
from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.offering import Offered, lacks_mps, offered, told_of
from aliquot_agent.isolation.pacemaker import Pacemaker
from aliquot_agent.isolation.slice_files import MIB, SliceFiles
from aliquot_agent.settings import NVML, AgentSettings
from aliquot_agent.web.accounts import SliceUse
from aliquot_core.modes import INTERPOSER, MPS
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.interposing import lacks_cuda

log = logging.getLogger(__name__)

_NO_MOUNTS = (
    "containers are processes of this machine, which see the driver's own library: choose mps or observe"
    " ([agent] isolation), or run it on Kubernetes"
)


def make_isolation(settings: AgentSettings) -> SliceFiles | None:
    """Where interposed containers have their limits, on a node that is to interpose on some of its GPUs."""
    if not settings.wants(INTERPOSER):
        if settings.mounts:
            # It was wanted before, perhaps: only a privileged container could unmount what was mounted then, and there
            # is none any more; but its memory can be the node's again.
            Filling(Path(settings.isolation_folder)).give_back()
        return None
    if is_simulated(settings) or not settings.mounts:  # nothing to stand in front of, or no way to
        return None
    files = SliceFiles(folder=Path(settings.isolation_folder), library=Path(settings.interposer))
    # Containers that start from now on get the library of this image.
    files.prepare()
    return files


def change_room(settings: AgentSettings, *, away: bool) -> None:
    """Mount or unmount what bounds accounts; a node where that fails serves all the same, and its agent says so."""
    folder = Path(settings.isolation_folder)
    try:
        log.info(take_room_away(folder) if away else _room_made(folder, settings=settings))
    except (RoomError, OSError) as error:
        log.error("accounts are not bounded: %s", error)  # noqa: TRY400 - what a node has not, and no defect


def _room_made(folder: Path, *, settings: AgentSettings) -> str:
    if not (settings.accounts_mib and settings.wants(INTERPOSER)):
        return "no file system for accounts is asked for"
    files = SliceFiles(folder=folder, library=Path(settings.interposer))
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return make_room(folder, mib=settings.accounts_mib, in_use=files.in_use(booted=booted))


def make_mps(settings: AgentSettings) -> MpsFolder | None:
    """Where MPS daemons are asked for, on a node where MPS is to share GPUs."""
    return MpsFolder(Path(settings.mps_folder)) if settings.wants(MPS) else None


def offer_isolation(
    gpu: GpuFacts,
    *,
    settings: AgentSettings,
    obstacle: Callable[[GpuFacts], str],
    mps: MpsFolder | None = None,
) -> Offered:
    """In which modes a GPU can hold a slice; `obstacle` is what is in the interposer's way."""
    mode = told_of(gpu, lines=settings.isolation_of, otherwise=settings.isolation)
    # It needs none of the driver's files: they may be simulated, the GPUs not.
    if mode == MPS and settings.gpus == NVML:
        return offered(gpu, mode=mode, obstacle=partial(lacks_mps, was_kept=mps is not None and mps.was_kept()))
    if mode == INTERPOSER and not settings.mounts:
        return offered(gpu, mode=mode, obstacle=lambda _: _NO_MOUNTS)
    return _with_room(offered(gpu, mode=mode, obstacle=obstacle), settings=settings)


def _with_room(offer: Offered, *, settings: AgentSettings) -> Offered:
    """The same modes, and what is lacking where tenants can take room of the node's disk by their accounts."""
    folder = Path(settings.isolation_folder)
    if INTERPOSER not in offer.modes or not settings.accounts_mib or is_bounded(folder):
        return offer
    lack = (
        f"{folder} is on the node's disk, where tenants can enlarge accounts, for no file system was mounted there:"
        " drain the node and delete its agent's pod, or mount one"
    )
    return Offered(modes=offer.modes, lack=lack)


def what_hinders(files: SliceFiles | None, driver_files: DriverFiles, gpu: GpuFacts) -> str:
    """What keeps the interposer from being put into containers that use this GPU."""
    if files is None:
        return "the GPUs are simulated, and there is no driver: choose observe ([agent] isolation)"
    try:
        edits = driver_files.edits_for(DriverGpu(uuid=gpu.uuid, index=gpu.index, minor=gpu.minor))
    except DriverFilesError as error:
        return str(error)
    return files.obstacle() or lacks_cuda(edits)


def tell_memory(pacemaker: Pacemaker, slices: Sequence[SliceUse]) -> Collection[Owner]:
    """Hand on what the driver says that each slice holds; who made accounts larger since the last time."""
    pacemaker.measured(
        {(one.uid, one.container, one.gpu): None if one.used_mib is None else one.used_mib * MIB for one in slices}
    )
    return pacemaker.enlarged()


def is_simulated(settings: AgentSettings) -> bool:
    """Whether containers get a mark instead of a driver."""
    return settings.driver_files == "simulated" or settings.gpus != NVML
