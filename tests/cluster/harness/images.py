"""Container images without a registry: a docker-archive made here, ready for `ctr images import`."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.harness import binaries

BUSYBOX_IMAGE = "aliquot.test/busybox:1"
PAUSE_IMAGE = "aliquot.test/pause:1"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Image:
    """What goes into an image: each path inside is a file's bytes, or a file or folder of this machine."""

    reference: str
    content: Mapping[str, bytes | Path]
    links: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def write(self, archive: Path) -> None:
        """Write the image as a docker-archive with one layer."""
        layer = self._layer()
        config = json.dumps(self._config(layer)).encode()
        manifest = [{"Config": "config.json", "RepoTags": [self.reference], "Layers": ["layer.tar"]}]
        with tarfile.open(archive, "w") as tar:
            _add(tar, "config.json", config)
            _add(tar, "layer.tar", layer)
            _add(tar, "manifest.json", json.dumps(manifest).encode())

    def _layer(self) -> bytes:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            for name in ("tmp", "etc", "proc", "sys", "dev"):
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
                tar.addfile(folder)
            for name, content in self.content.items():
                if isinstance(content, bytes):
                    _add(tar, name.lstrip("/"), content)
                else:
                    tar.add(content, arcname=name.lstrip("/"))
            for name, target in self.links.items():
                link = tarfile.TarInfo(name.lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, target
                tar.addfile(link)
        return layer.getvalue()

    def _config(self, layer: bytes) -> dict[str, object]:
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **self.env}
        return {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Cmd": list(self.command),
                "Env": [f"{name}={value}" for name, value in environment.items()],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    tar.addfile(entry, io.BytesIO(content))


def pause_image() -> Image:
    """The sandbox of every pod."""
    return Image(reference=PAUSE_IMAGE, content={"/pause": binaries.path_of("pause")}, entrypoint=["/pause"])


def busybox_image() -> Image:
    """A shell and its tools, one static file."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox").resolve()
    tools = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    return Image(
        reference=BUSYBOX_IMAGE,
        content={
            "/bin/busybox": busybox,
            "/etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        },
        links={f"/bin/{tool}": "busybox" for tool in tools if tool != "busybox"},
        command=["sh"],
    )
