"""Nodes with an NVIDIA driver, as trees of files in memory."""

from __future__ import annotations

import errno
import itertools
import os

from aliquot_deviceplugin.cdi.node_files import FileKind, Look

VERSION = "570.86.15"


class FakeNode:
    """A tree of files; every change gives the path, and the folder it lies in, another stamp."""

    def __init__(self) -> None:
        self._changes = itertools.count(1)
        self._looks: dict[str, Look] = {"/": Look(kind=FileKind.FOLDER)}
        self._contents: dict[str, bytes] = {}
        self.looked_at = 0

    def file(self, path: str, content: bytes = b"") -> None:
        """Write a file."""
        self._contents[path] = content
        self._put(path, FileKind.FILE)

    def link(self, path: str, target: str) -> None:
        """Make a link."""
        self._put(path, FileKind.LINK, target=target)

    def device(self, *paths: str) -> None:
        """Make device nodes."""
        for path in paths:
            self._put(path, FileKind.DEVICE)

    def socket(self, path: str) -> None:
        """Make a socket."""
        self._put(path, FileKind.SOCKET)

    def remove(self, path: str) -> None:
        """Remove one path."""
        del self._looks[path]
        self._touch(path.rpartition("/")[0] or "/")

    def look(self, path: str) -> Look | None:
        """What a path is."""
        self.looked_at += 1
        return self._looks.get(path)

    def read(self, path: str, *, limit: int) -> bytes:
        """The first bytes of a file."""
        if path not in self._looks or path not in self._contents:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._contents[path][:limit]

    def names(self, folder: str) -> list[str]:
        """What lies in a folder."""
        start = folder.rstrip("/") + "/"
        return sorted(
            {path[len(start) :] for path in self._looks if path.startswith(start) and "/" not in path[len(start) :]}
        )

    def _put(self, path: str, kind: FileKind, target: str = "") -> None:
        folder = path.rpartition("/")[0]
        while folder and folder not in self._looks:
            self._touch(folder)
            folder = folder.rpartition("/")[0]
        self._looks[path] = Look(kind=kind, target=target, stamp=(next(self._changes),))
        self._touch(path.rpartition("/")[0] or "/")

    def _touch(self, folder: str) -> None:
        self._looks[folder] = Look(kind=FileKind.FOLDER, stamp=(next(self._changes),))


def with_driver(
    *, root: str = "", folder: str = "/usr/lib/x86_64-linux-gnu", version: str = VERSION, gpus: int = 2
) -> FakeNode:
    """A node on which the driver is installed as NVIDIA's packages do it."""
    node = FakeNode()
    node.device("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    node.device(*(f"/dev/nvidia{minor}" for minor in range(gpus)))
    node.device("/dev/nvidia-caps/nvidia-cap1")
    lay_libraries(node, folder=root + folder, version=version)
    for binary in ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "ls"):
        node.file(f"{root}/usr/bin/{binary}")
    node.link(f"{root}/lib", "usr/lib")
    for firmware in ("gsp_ga10x.bin", "gsp_tu10x.bin", "README"):
        node.file(f"{root}/usr/lib/firmware/nvidia/{version}/{firmware}")
    node.socket(f"{root}/run/nvidia-persistenced/socket")
    return node


def lay_libraries(node: FakeNode, *, folder: str, version: str) -> None:
    """Libraries and their links, and some that are none of a container's business."""
    links = {
        "libcuda": ("libcuda.so", "libcuda.so.1"),
        "libcudadebugger": ("libcudadebugger.so.1",),
        "libnvidia-ml": ("libnvidia-ml.so", "libnvidia-ml.so.1"),
        "libnvidia-nvvm": ("libnvidia-nvvm.so.4",),
        "libnvidia-ptxjitcompiler": ("libnvidia-ptxjitcompiler.so.1",),
        "libnvidia-gpucomp": (),
        "libnvidia-glcore": (),
    }
    for stem, names in links.items():
        node.file(f"{folder}/{stem}.so.{version}")
        for name in names:
            node.link(f"{folder}/{name}", f"{stem}.so.{version}")
    node.file(f"{folder}/libc.so.6")
