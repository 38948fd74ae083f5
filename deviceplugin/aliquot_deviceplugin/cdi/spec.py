"""CDI specs as typed structs: read strictly, written so that the same spec always gives the same bytes.

Runtimes refuse fields they do not know and a version lower than what the fields need, so a spec is written with the
lowest version that does. Ours carry annotations, hence 0.6.0: containerd 1.7.12 is the first that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from aliquot_deviceplugin.cdi.errors import SpecError

# Released versions with what the fields below need them for; later ones brought network devices and Intel RDT, which
# are refused as unknown fields if they are used.
KNOWN_VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")

_HOOKS = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
_DEVICE_TYPES = {"", "b", "c", "u", "p"}
_PERMISSIONS = re.compile(r"[rwm]{0,3}|none")
_KIND = re.compile(r"[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?/[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DEVICE_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?")
_ENV = re.compile(r"[^=\x00]+=[^\x00]*", re.DOTALL)


class _Part(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Common settings of a spec's parts."""


class DeviceNode(_Part, frozen=True, kw_only=True):
    """A device file; what is left out the runtime reads from the host's file."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def source(self) -> str:
        """The file on the host."""
        return self.host_path or self.path


class Mount(_Part, frozen=True, kw_only=True):
    """A file or folder of the host that appears in the container."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True, kw_only=True):
    """A program of the host that the runtime runs for the container."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class ContainerEdits(_Part, frozen=True, kw_only=True):
    """What is changed in a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()


class CdiDevice(_Part, frozen=True, kw_only=True):
    """One device that a container can ask for by name."""

    name: str
    container_edits: ContainerEdits
    annotations: dict[str, str] = {}


class Spec(_Part, frozen=True, kw_only=True):
    """A spec file: devices of one kind, and the edits that any of them brings."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    container_edits: ContainerEdits = ContainerEdits()
    annotations: dict[str, str] = {}

    def edits(self) -> Iterator[ContainerEdits]:
        """Those of the spec, then those of each device."""
        yield self.container_edits
        for device in self.devices:
            yield device.container_edits


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    cdi_version: str


def encode_spec(spec: Spec) -> bytes:
    """The file's content: compact, since runtimes parse every file of the folder anew whenever one is written."""
    return msgspec.json.encode(spec, order="deterministic") + b"\n"


def decode_spec(content: bytes, *, where: str) -> Spec:
    """Read a spec that is JSON."""
    try:
        raw = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SpecError(f"not readable: {error}", where=where) from None
    return spec_of(raw, where=where)


def spec_of(raw: Any, *, where: str) -> Spec:
    """Make a spec of what JSON or YAML held, refusing what a runtime would refuse."""
    try:
        _check_version(msgspec.convert(raw, _Version).cdi_version, where=where)
        spec = msgspec.convert(raw, Spec)
    except msgspec.ValidationError as error:
        raise SpecError(f"not a CDI spec: {error}", where=where) from None
    if problem := next(_problems(spec), None):
        raise SpecError(problem, where=where)
    return spec


def lowest_version(spec: Spec) -> str:
    """The version that the fields in use need; what lies below is not worth telling apart."""
    if any(edits.additional_gids for edits in spec.edits()):
        return "0.7.0"
    _, _, name_of_class = spec.kind.partition("/")
    if spec.annotations or any(device.annotations for device in spec.devices) or "." in name_of_class:
        return "0.6.0"
    return "0.5.0"


def is_device_name(name: str) -> bool:
    """Whether runtimes take it for a device."""
    return _DEVICE_NAME.fullmatch(name) is not None


def _check_version(version: str, *, where: str) -> None:
    if version.removeprefix("v") not in KNOWN_VERSIONS:
        raise SpecError(
            f"CDI version {version[:20]!r} is not understood, only {KNOWN_VERSIONS[0]} to {KNOWN_VERSIONS[-1]}",
            where=where,
        )


def _problems(spec: Spec) -> Iterator[str]:
    if not _KIND.fullmatch(spec.kind):
        yield f"{spec.kind[:80]!r} is no kind of device"
    if not spec.devices:
        yield "holds no device"
    names = [device.name for device in spec.devices]
    yield from (f"{name[:80]!r} is no name of a device" for name in names if not is_device_name(name))
    if len(set(names)) != len(names):
        yield "holds a device twice"
    for edits in spec.edits():
        yield from _edit_problems(edits)


def _edit_problems(edits: ContainerEdits) -> Iterator[str]:
    hook_env = (entry for hook in edits.hooks for entry in hook.env)
    for entry in (*edits.env, *hook_env):
        if not _ENV.fullmatch(entry):
            yield f"{entry[:80]!r} is no environment variable"
    for hook in edits.hooks:
        if hook.hook_name not in _HOOKS:
            yield f"{hook.hook_name[:80]!r} is no hook's name"
    for node in edits.device_nodes:
        if node.type not in _DEVICE_TYPES or not _PERMISSIONS.fullmatch(node.permissions):
            yield f"device node {node.path[:80]!r} has a type or permissions that do not exist"
    for path in _paths(edits):
        if not path.startswith("/") or "\x00" in path:
            yield f"{path[:80]!r} is no absolute path"


def _paths(edits: ContainerEdits) -> Iterator[str]:
    for node in edits.device_nodes:
        yield node.path
        yield node.source
    for mount in edits.mounts:
        yield mount.host_path
        yield mount.container_path
    for hook in edits.hooks:
        yield hook.path
