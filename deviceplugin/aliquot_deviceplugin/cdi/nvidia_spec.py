"""The node's own NVIDIA CDI spec, as `nvidia-ctk cdi generate` writes it: the edits of one GPU are taken from it.

Such a file is as old as its last generation. After a reboot, a new driver or a replaced card it may name files that
are gone or, worse, call another GPU by this one's index or uuid. So what is found is compared with the minor number
that the driver itself reports, and every file it names must be there; otherwise nothing is handed out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError, SpecError
from aliquot_deviceplugin.cdi.merging import merge_edits
from aliquot_deviceplugin.cdi.mig_nodes import CAP_NODE, cap_nodes
from aliquot_deviceplugin.cdi.node_files import NodeFiles, missing, resolve
from aliquot_deviceplugin.cdi.spec import CdiDevice, ContainerEdits, Spec, decode_spec, spec_of

NVIDIA_KIND = "nvidia.com/gpu"
# 16 GPUs with all their MIG parts take 400 kB of YAML.
LARGEST_FILE = 4 * 1024 * 1024

_log = logging.getLogger(__name__)
# On the host, where a driver container's files may lie below a root of their own.
_GPU_NODE = re.compile(r"(?:/.*)?/dev/nvidia([0-9]{1,4})")
_NAMED_AT_ONCE = 3


class NvidiaSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A spec of NVIDIA's kind and the file it stands in."""

    path: str
    spec: Spec

    @property
    def folder(self) -> str:
        """Where the file lies: a later folder wins over an earlier one."""
        return self.path.rpartition("/")[0]


class NvidiaSpecFiles:
    """Driver files by the node's NVIDIA CDI specs; the first one that has the GPU counts."""

    def __init__(self, *, files: NodeFiles, specs: Sequence[NvidiaSpec]) -> None:
        self._files = files
        self._specs = specs

    @property
    def source(self) -> str:
        """The files' names."""
        return f"NVIDIA CDI spec {', '.join(spec.path for spec in self._specs)}"

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """What the spec gives any container, and what it gives for this GPU."""
        caps = set(cap_nodes(self._files, gpu))
        found, device = self._device(gpu, caps=caps)
        _check_nodes(found, device, gpu=gpu, caps=caps)
        edits = merge_edits([found.spec.container_edits, device.container_edits])
        if gone := missing(self._files, _host_paths(edits)):
            shown = ", ".join(gone[:_NAMED_AT_ONCE])
            raise _stale(found.path, f"names files that are not there: {shown} ({len(gone)} in all)")
        return edits

    def _device(self, gpu: DriverGpu, *, caps: set[str]) -> tuple[NvidiaSpec, CdiDevice]:
        having = [(spec, device) for spec in self._specs if (device := _device_of(spec.spec, gpu, caps=caps))]
        if not having:
            raise _stale(self._specs[0].path, f"does not have GPU {gpu.uuid} (index {gpu.index}, minor {gpu.minor})")
        first, *others = having
        for other in others:
            if other[0].folder == first[0].folder and other[1] != first[1]:
                raise DriverFilesError(
                    f"{first[0].path} and {other[0].path} say different things of GPU {gpu.uuid}",
                    where=first[0].folder,
                    remedy="remove the one that is out of date",
                )
        return first


def read_nvidia_specs(
    files: NodeFiles, *, folders: Sequence[str], is_ours: Callable[[str], bool] = lambda _: False
) -> list[NvidiaSpec]:
    """All specs of NVIDIA's kind, those of later folders first, as runtimes rank them."""
    return [
        NvidiaSpec(path=path, spec=spec)
        for path in spec_paths(files, folders=folders, is_ours=is_ours)
        if (spec := _read(files, path)) and spec.kind == NVIDIA_KIND
    ]


def spec_paths(files: NodeFiles, *, folders: Sequence[str], is_ours: Callable[[str], bool]) -> list[str]:
    """What a runtime would read in these folders, without the slices' own specs."""
    return [
        f"{folder}/{name}"
        for folder in reversed(folders)
        for name in files.names(resolve(files, folder) or folder)
        if name.endswith((".json", ".yaml")) and not is_ours(name)
    ]


def _read(files: NodeFiles, path: str) -> Spec | None:
    """A spec, or None if the file is garbled and nothing of NVIDIA's."""
    content = _content(files, path)
    try:
        if path.endswith(".json"):
            return decode_spec(content, where=path)
        # Not above: importing PyYAML takes 18 ms and 2.6 MiB, which an agent without a YAML spec need not pay.
        from aliquot_deviceplugin.cdi.yaml_reading import parse_yaml  # noqa: PLC0415 - reason above

        return spec_of(parse_yaml(content, where=path), where=path)
    except SpecError as error:
        if NVIDIA_KIND.encode() in content or "nvidia" in path:
            raise _stale(path, error.what) from error
        _log.debug("CDI spec of another vendor left alone", extra={"file": path, "problem": error.what})
        return None


def _content(files: NodeFiles, path: str) -> bytes:
    try:
        content = files.read(resolve(files, path) or path, limit=LARGEST_FILE + 1)
    except OSError as error:
        raise DriverFilesError(
            error.strerror or str(error), where=path, remedy="make the file readable for the agent"
        ) from error
    if len(content) > LARGEST_FILE:
        raise _stale(path, f"is larger than {LARGEST_FILE} bytes")
    return content


def _device_of(spec: Spec, gpu: DriverGpu, *, caps: set[str]) -> CdiDevice | None:
    """By uuid; else by device nodes; by index only where the driver told no minor, since indices move.

    An instance is known by its own two nodes: the numbers that the tool gives instances move with each that is made.
    """
    by_name = {device.name: device for device in spec.devices}
    if gpu.uuid in by_name:
        return by_name[gpu.uuid]
    if gpu.instance is not None:
        return next((device for device in by_name.values() if caps == _caps(device.container_edits)), None)
    if gpu.minor is None:
        return by_name.get(str(gpu.index)) or by_name.get(f"gpu{gpu.index}")
    whole = (device for name, device in by_name.items() if _is_whole_gpu(name))
    return next((device for device in whole if _minors(device.container_edits) == {gpu.minor}), None)


def _is_whole_gpu(name: str) -> bool:
    """MIG parts are called `0:1`, `mig0:1` or by a MIG uuid."""
    return ":" not in name and not name.startswith("MIG-")


def _check_nodes(found: NvidiaSpec, device: CdiDevice, *, gpu: DriverGpu, caps: set[str]) -> None:
    if (opened := _caps(found.spec.container_edits) | _caps(device.container_edits)) != caps:
        raise _stale(found.path, f"device {device.name} opens {_listed(opened)}, and GPU {gpu.uuid} is {_listed(caps)}")
    if given := _minors(found.spec.container_edits):
        raise _stale(found.path, f"gives every container /dev/nvidia{min(given)}, whatever GPU it holds")
    minors = _minors(device.container_edits)
    expected = minors if gpu.minor is None else {gpu.minor}
    if len(minors) != 1 or minors != expected:
        nodes = ", ".join(f"/dev/nvidia{minor}" for minor in sorted(minors)) or "no GPU's device node"
        raise _stale(found.path, f"device {device.name} stands for {nodes}, but GPU {gpu.uuid} has minor {gpu.minor}")


def _listed(caps: set[str]) -> str:
    return ", ".join(sorted(caps)) or "no instance of MIG"


def _caps(edits: ContainerEdits) -> set[str]:
    """The nodes that open instances of MIG."""
    return {node.path for node in edits.device_nodes if node.path.startswith(CAP_NODE)}


def _minors(edits: ContainerEdits) -> set[int]:
    return {int(match[1]) for node in edits.device_nodes if (match := _GPU_NODE.fullmatch(node.source))}


def _host_paths(edits: ContainerEdits) -> Iterator[str]:
    # A node with type and number is made by the runtime without looking at the host's.
    yield from (node.source for node in edits.device_nodes if not (node.type and node.major))
    yield from (mount.host_path for mount in edits.mounts)
    yield from (hook.path for hook in edits.hooks)


def _stale(path: str, what: str) -> DriverFilesError:
    return DriverFilesError(
        what,
        where=path,
        remedy=f"write it anew with `nvidia-ctk cdi generate --output={path}`, or set the driver files to `discover`",
    )
