"""CDI: a device's name becomes edits of a container; here, of a process.

A process can have environment variables. Mounts and device nodes are noted: the host's own files are what it sees, so
a variable that names what is mounted names where that lies on the host.
Hooks run inside a container's namespaces before it starts; without a container they are skipped, and that is said.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from aliquot_kube.errors import NOT_JSON
from aliquot_standalone.kubelet.errors import CdiError

log = logging.getLogger(__name__)


class DeviceNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device file that the container should see."""

    path: str
    host_path: str = ""


class Mount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A host's file or folder that the container should see."""

    host_path: str
    container_path: str
    options: list[str] = []


class Hook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program to run around the container's creation."""

    hook_name: str
    path: str


class Edits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a device, or all devices of a spec, change in a container."""

    env: list[str] = []
    device_nodes: list[DeviceNode] = []
    mounts: list[Mount] = []
    hooks: list[Hook] = []

    def then(self, later: Edits) -> Edits:
        """Both, in this order."""
        return Edits(
            env=self.env + later.env,
            device_nodes=self.device_nodes + later.device_nodes,
            mounts=self.mounts + later.mounts,
            hooks=self.hooks + later.hooks,
        )

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The base with the edits' variables, which win."""
        host = {mount.container_path: mount.host_path for mount in self.mounts}
        edited = dict(_variable(line) for line in self.env)
        return {**base, **{name: host.get(value, value) for name, value in edited.items()}}


class _SpecDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    container_edits: Edits = Edits()


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One spec file."""

    kind: str
    devices: list[_SpecDevice]
    container_edits: Edits = Edits()
    cdi_version: str


class Specs(msgspec.Struct, frozen=True, kw_only=True):
    """All readable spec files of a folder, and why others are not."""

    by_file: dict[str, Spec]
    broken: dict[str, str] = {}


class SpecFolder:
    """A folder's `*.json`, looked at afresh each time; only files that have changed are read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, tuple[tuple[int, int, int], Spec]] = {}

    def read(self) -> Specs:
        """All specs as they are now."""
        by_file: dict[str, Spec] = {}
        broken: dict[str, str] = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                by_file[path.name] = self._spec(path)
            except FileNotFoundError:
                continue
            except (OSError, *NOT_JSON) as error:
                broken[path.name] = str(error)
        self._read = {name: kept for name, kept in self._read.items() if name in by_file}
        return Specs(by_file=by_file, broken=broken)

    def _spec(self, path: Path) -> Spec:
        seen = path.stat()
        # Specs are replaced by renaming, which gives a new inode even within one tick of the clock.
        stamp = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        kept = self._read.get(path.name)
        if kept is None or kept[0] != stamp:
            kept = self._read[path.name] = (stamp, msgspec.json.decode(path.read_bytes(), type=Spec))
        return kept[1]


def resolve(specs: Specs, names: Iterable[str]) -> Edits:
    """The edits of these devices in their order; a spec's common edits come once, before its first device's."""
    edits = Edits()
    seen: set[str] = set()
    for name in dict.fromkeys(names):
        file, device = _find(specs, name)
        if file not in seen:
            seen.add(file)
            edits = edits.then(specs.by_file[file].container_edits)
        edits = edits.then(device.container_edits)
    return edits


def say_what_is_left_out(edits: Edits, *, container: str) -> None:
    """Log what a process cannot have."""
    if edits.hooks:
        skipped = [hook.path for hook in edits.hooks]
        log.info("CDI hooks are skipped: there is no container", extra={"container": container, "hooks": skipped})
    if edits.mounts or edits.device_nodes:
        noted = [mount.container_path for mount in edits.mounts] + [node.path for node in edits.device_nodes]
        log.debug("CDI mounts are the host's own files here", extra={"container": container, "paths": noted})


def _find(specs: Specs, name: str) -> tuple[str, _SpecDevice]:
    kind, _, short = name.partition("=")
    found = [
        (file, device)
        for file, spec in specs.by_file.items()
        if spec.kind == kind
        for device in spec.devices
        if device.name == short
    ]
    if len(found) == 1:
        return found[0]
    if found:
        files = ", ".join(file for file, _ in found)
        raise CdiError(f"CDI device {name} is in several specs: {files}", remedy="leave it in one")
    unread = "".join(f"; {file} can't be read: {why}" for file, why in specs.broken.items())
    raise CdiError(f"no CDI spec names the device {name}{unread}")


def _variable(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name, value
