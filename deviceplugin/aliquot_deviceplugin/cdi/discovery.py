"""Find the driver's files on a node that has no NVIDIA CDI spec, and mount them so that no hook is needed.

NVIDIA's tool mounts each library once and lets hooks make its links (libcuda.so.1) and the loader's cache inside the
container. Here every name that leads to a library on the node becomes a mount of the same file, in the node's folder
and in the two that loaders search without a cache: so a container of Debian finds the libraries of a node of RHEL and
the other way round. `LD_LIBRARY_PATH` is left to the image, which would lose its own.

The driver's version is what libcuda.so.1 leads to; libraries of another version, left over from an upgrade, are left.
MIG's nodes under /dev/nvidia-caps each open a part of a GPU: an instance gets its own two, a whole GPU needs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.ld_cache import LARGEST_CACHE, LD_CACHE, folders_of
from aliquot_deviceplugin.cdi.mig_nodes import CAP_NODE, cap_nodes
from aliquot_deviceplugin.cdi.node_files import FileKind, NodeFiles, RememberedFiles, SubtreeFiles, resolve
from aliquot_deviceplugin.cdi.spec import ContainerEdits, DeviceNode, Mount

CUDA = "libcuda.so.1"
# What computing and watching need; graphics' forty libraries would only make every spec larger.
LIBRARIES = (
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-encode",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-nvvm70",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler",
    "libnvidia-sandboxutils",
)
BINARIES = ("nvidia-debugdump", "nvidia-smi")
BINARY_FOLDERS = ("/usr/bin", "/bin", "/usr/local/nvidia/bin", "/opt/bin")
SOCKET = "/run/nvidia-persistenced/socket"
FIRMWARE_FOLDER = "/lib/firmware/nvidia"
NEEDED_NODES = ("/dev/nvidia-uvm", "/dev/nvidiactl")
OTHER_NODES = ("/dev/nvidia-modeset", "/dev/nvidia-uvm-tools")
# Where loaders look without a cache: Debian and its kin, then everybody else.
LOADER_FOLDERS = {
    "x86_64": ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"),
    "aarch64": ("/usr/lib/aarch64-linux-gnu", "/usr/lib64"),
}
ODD_LIBRARY_FOLDERS = ("/usr/lib", "/usr/local/nvidia/lib64", "/home/kubernetes/bin/nvidia/lib64", "/opt/nvidia/lib64")

_REMEDY = "load the driver's modules: `nvidia-modprobe -u -c 0` makes its device nodes"
_CAP_REMEDY = "`nvidia-modprobe -f` makes it, of the instance's `access` below /proc/driver/nvidia/capabilities"
_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_VERSION = re.compile(r"libcuda\.so\.([0-9]+\.[0-9.]+)")
_LIBRARY = re.compile(r"(?P<stem>lib[-A-Za-z0-9_]+)\.so(\.[0-9.]+)?")
_FIRMWARE = re.compile(r"gsp[-A-Za-z0-9_]*\.bin")


class DriverPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: the folder of the node that the driver's files lie below, and the node's processor."""

    root: str = "/"
    machine: str = "x86_64"

    def on_node(self, path: str) -> str:
        """A path below the driver's root, as the runtime knows it."""
        return self.root.rstrip("/") + path

    @property
    def loader_folders(self) -> tuple[str, ...]:
        """Where containers look for libraries by themselves."""
        return LOADER_FOLDERS.get(self.machine, ("/usr/lib64",))


class DiscoveredFiles:
    """Driver files that were found; device nodes are looked for at every call, since modules come and go."""

    def __init__(self, *, files: NodeFiles, place: DriverPlace, version: str, mounts: tuple[Mount, ...]) -> None:
        self._files = files
        self._place = place
        self._version = version
        self._mounts = mounts

    @property
    def source(self) -> str:
        """The driver and where it lies."""
        return f"files of driver {self._version} found under {self._place.root}"

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """The nodes that every container needs, the GPU's own, an instance's own, the mounts."""
        if gpu.minor is None:
            raise DriverFilesError(
                "the driver does not tell its minor number, so its device node is unknown",
                where=f"GPU {gpu.uuid}",
                remedy="write a CDI spec with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
            )
        paths = (*NEEDED_NODES, f"/dev/nvidia{gpu.minor}", *cap_nodes(self._files, gpu))
        needed = [self.node(path) for path in paths]
        others = [node for path in OTHER_NODES if (node := self._node_if_there(path))]
        return ContainerEdits(device_nodes=(*others, *needed), mounts=self._mounts)

    def node(self, path: str) -> DeviceNode:
        """A device node that must be there."""
        if node := self._node_if_there(path):
            return node
        raise DriverFilesError(
            f"{path} is no device",
            where=f"driver files under {self._place.root}",
            remedy=_CAP_REMEDY if path.startswith(CAP_NODE) else _REMEDY,
        )

    def _node_if_there(self, path: str) -> DeviceNode | None:
        """The node's own, or the driver container's if only that has it."""
        for source in dict.fromkeys([path, self._place.on_node(path)]):
            seen = self._files.look(source)
            if seen and seen.kind is FileKind.DEVICE:
                return DeviceNode(path=path, host_path="" if source == path else source)
        return None


def discover(files: NodeFiles, *, place: DriverPlace) -> DiscoveredFiles:
    """Find the driver; raises DriverFilesError if there is none."""
    tree = RememberedFiles(SubtreeFiles(files, root=place.root))
    folders, version = _library_folders(tree, place=place)
    found = (
        *_libraries(tree, folders, version=version, place=place),
        *_binaries(tree),
        *_firmware(tree, version=version),
        *_socket(tree),
    )
    mounts = (msgspec.structs.replace(mount, host_path=place.on_node(mount.host_path)) for mount in found)
    discovered = DiscoveredFiles(files=files, place=place, version=version, mounts=tuple(mounts))
    for path in NEEDED_NODES:
        discovered.node(path)
    return discovered


def watched_paths(place: DriverPlace) -> list[str]:
    """What changes when the driver does: the folders of its libraries and the loader's cache."""
    return [place.on_node(path) for path in (LD_CACHE, *place.loader_folders, *ODD_LIBRARY_FOLDERS)]


# --- below the driver's root -----------------------------------------------------------------------------------------
# From here on all paths are those that a process would see that has the driver's root as its own.


def _library_folders(tree: NodeFiles, *, place: DriverPlace) -> tuple[list[str], str]:
    """The folder that has libcuda.so.1, that of the file it leads to, and the version of that."""
    for folder in (*_cached_folders(tree, place=place), *place.loader_folders, *ODD_LIBRARY_FOLDERS):
        real = resolve(tree, f"{folder}/{CUDA}")
        if real and (match := _VERSION.fullmatch(real.rpartition("/")[2])):
            # Without links: /lib is /usr/lib almost everywhere, and a second mount there would be one too many.
            folders = [resolve(tree, folder) or folder, real.rpartition("/")[0]]
            return list(dict.fromkeys(folders)), match[1]
    raise DriverFilesError(
        f"no {CUDA} of an NVIDIA driver was found",
        where=f"driver files under {place.root}",
        remedy="install the driver (and run ldconfig), or set the driver's root to where it lies",
    )


def _cached_folders(tree: NodeFiles, *, place: DriverPlace) -> list[str]:
    try:
        cache = tree.read(LD_CACHE, limit=LARGEST_CACHE)
    except OSError:
        # A driver container's root has none, and a node may do without.
        return []
    return folders_of(CUDA, cache=cache, machine=place.machine)


def _libraries(tree: NodeFiles, folders: list[str], *, version: str, place: DriverPlace) -> Iterator[Mount]:
    """Every name of every library, in the folder where the node has it and where loaders look."""
    targets = dict.fromkeys([folders[0], *place.loader_folders])
    reals = {
        name: real for folder in folders for name, real in _names_in(tree, folder) if real.endswith(f".so.{version}")
    }
    for name, real in sorted(reals.items()):
        yield from (_mount(real, to=f"{target}/{name}") for target in targets)


def _names_in(tree: NodeFiles, folder: str) -> Iterator[tuple[str, str]]:
    for name in tree.names(folder):
        match = _LIBRARY.fullmatch(name)
        if match and match["stem"] in LIBRARIES and (real := resolve(tree, f"{folder}/{name}")):
            yield name, real


def _binaries(tree: NodeFiles) -> Iterator[Mount]:
    for name in BINARIES:
        found = (resolve(tree, f"{folder}/{name}") for folder in BINARY_FOLDERS)
        if real := next((path for path in found if path), None):
            yield _mount(real, to=f"/usr/bin/{name}")


def _firmware(tree: NodeFiles, *, version: str) -> Iterator[Mount]:
    folder = f"{FIRMWARE_FOLDER}/{version}"
    real = resolve(tree, folder) or folder
    names = (name for name in tree.names(real) if _FIRMWARE.fullmatch(name))
    yield from (_mount(f"{real}/{name}", to=f"{folder}/{name}") for name in names)


def _socket(tree: NodeFiles) -> Iterator[Mount]:
    real = resolve(tree, SOCKET)
    seen = tree.look(real) if real else None
    if real and seen and seen.kind is FileKind.SOCKET:
        yield _mount(real, *_OPTIONS, "noexec", to=SOCKET)


def _mount(real: str, *options: str, to: str) -> Mount:
    return Mount(host_path=real, container_path=to, options=options or _OPTIONS, type="bind")
