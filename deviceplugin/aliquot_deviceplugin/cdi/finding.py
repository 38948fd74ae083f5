"""Choose where a node's driver files come from, say so, and look again when they have changed.

The node's NVIDIA CDI spec wins, because its operator made it. Without one the driver is searched for. A spec that is
garbled is an error and no reason to search: what containers get must not depend on whether a file could just be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from enum import StrEnum

import msgspec

from aliquot_deviceplugin.cdi.discovery import DriverPlace, discover, watched_paths
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.node_files import NodeFiles, resolve
from aliquot_deviceplugin.cdi.nvidia_spec import NvidiaSpecFiles, read_nvidia_specs, spec_paths
from aliquot_deviceplugin.cdi.spec import ContainerEdits

_log = logging.getLogger(__name__)


class DriverSource(StrEnum):
    """The setting: which way to go."""

    AUTO = "auto"
    NVIDIA_CDI = "nvidia-cdi"
    DISCOVER = "discover"


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where driver files may come from; paths are the node's."""

    source: DriverSource = DriverSource.AUTO
    spec_folders: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    place: DriverPlace = DriverPlace()


def find_driver_files(
    files: NodeFiles, *, settings: DriverSettings, is_ours: Callable[[str], bool] = lambda _: False
) -> DriverFiles:
    """The node's driver files; `is_ours` tells the slices' own specs by their names."""
    if settings.source is not DriverSource.DISCOVER:
        if specs := read_nvidia_specs(files, folders=settings.spec_folders, is_ours=is_ours):
            return NvidiaSpecFiles(files=files, specs=specs)
        if settings.source is DriverSource.NVIDIA_CDI:
            raise DriverFilesError(
                "no CDI spec of kind nvidia.com/gpu was found",
                where=" or ".join(settings.spec_folders),
                remedy="write one with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
            )
    return discover(files, place=settings.place)


def driver_stamp(
    files: NodeFiles, *, settings: DriverSettings, is_ours: Callable[[str], bool] = lambda _: False
) -> Hashable:
    """Something that differs when the driver files have to be found anew."""
    paths = [*spec_paths(files, folders=settings.spec_folders, is_ours=is_ours), *watched_paths(settings.place)]
    looks = (files.look(resolve(files, path) or path) for path in paths)
    return tuple((path, look.stamp) for path, look in zip(paths, looks, strict=True) if look)


class CurrentDriverFiles:
    """Driver files that are found anew whenever their stamp differs from when they were found last."""

    def __init__(self, *, find: Callable[[], DriverFiles], stamp: Callable[[], Hashable]) -> None:
        self._find = find
        self._stamp = stamp
        self._found_at: Hashable = None
        self._found: DriverFiles | None = None

    @property
    def source(self) -> str:
        """Where they come from now."""
        return self.refresh().source

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """As the files are now."""
        return self.refresh().edits_for(gpu)

    def refresh(self) -> DriverFiles:
        """Find them again if need be; raises DriverFilesError when there are none (any more)."""
        # Stamped before reading: what changes meanwhile is found at the next call.
        stamp = self._stamp()
        if self._found is None or stamp != self._found_at:
            self._found = self._find()
            self._found_at = stamp
            _log.info("driver files found", extra={"source": self._found.source})
        return self._found


def node_driver_files(
    files: NodeFiles, *, settings: DriverSettings, is_ours: Callable[[str], bool]
) -> CurrentDriverFiles:
    """What the agent of a real node asks."""
    return CurrentDriverFiles(
        find=lambda: find_driver_files(files, settings=settings, is_ours=is_ours),
        stamp=lambda: driver_stamp(files, settings=settings, is_ours=is_ours),
    )
