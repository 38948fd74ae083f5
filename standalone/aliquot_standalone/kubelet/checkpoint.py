"""The device table on disk, in the shape of the kubelet's own checkpoint, so that one reader does for both."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from aliquot_standalone.kubelet.errors import KubeletError
from aliquot_standalone.kubelet.holdings import Holding, HoldingKey

log = logging.getLogger(__name__)

T = TypeVar("T")


class CheckpointError(KubeletError):
    """The file is no checkpoint, or not the one that was written."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs")
    alloc_resp: str | None


class _Data(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    pod_device_entries: list[_Entry] | None
    registered_devices: dict[str, list[str] | None] | None


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    data: _Data
    checksum: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet must not forget: who holds what, and which resources it knew."""

    holdings: dict[HoldingKey, Holding]
    registered: dict[str, list[str]]


def encode(holdings: Iterable[tuple[HoldingKey, Holding]], registered: Mapping[str, list[str]]) -> bytes:
    """The file's content."""
    entries = [_entry(key, held) for key, held in holdings]
    data = _Data(pod_device_entries=entries or None, registered_devices={**registered})
    return msgspec.json.encode(_File(data=data, checksum=_checksum(data)))


def decode(content: bytes) -> Checkpoint:
    """Read a file's content, or say what is wrong with it."""
    try:
        file = msgspec.json.decode(content, type=_File)
        entries = file.data.pod_device_entries or []
        holdings = dict(_holding(entry) for entry in entries)
    except (msgspec.DecodeError, ValueError) as error:
        raise CheckpointError(f"not understood: {error}", where="checkpoint") from error
    if (found := _checksum(file.data)) != file.checksum:
        raise CheckpointError(f"checksum {file.checksum} does not fit the data ({found})", where="checkpoint")
    registered = {name: ids or [] for name, ids in (file.data.registered_devices or {}).items()}
    return Checkpoint(holdings=holdings, registered=registered)


def read(path: Path) -> Checkpoint | None:
    """The last checkpoint; None where there is none or it is broken, as the kubelet goes on then."""
    try:
        return decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        log.exception("starting without the checkpoint", extra={"path": str(path), "why": str(error)})
        return None


def _entry(key: HoldingKey, held: Holding) -> _Entry:
    return _Entry(
        pod_uid=key.pod,
        container_name=key.container,
        resource_name=key.resource,
        device_ids={str(node): ids for node, ids in sorted(held.ids_by_numa.items())},
        alloc_resp=base64.b64encode(held.answer).decode(),
    )


def _holding(entry: _Entry) -> tuple[HoldingKey, Holding]:
    key = HoldingKey(entry.pod_uid, entry.container_name, entry.resource_name)
    ids = {int(node): names or [] for node, names in (entry.device_ids or {}).items()}
    return key, Holding(ids_by_numa=ids, answer=base64.b64decode(entry.alloc_resp or "", validate=True))


def _checksum(data: _Data) -> int:
    """FNV-1a over the data as Go's debug printer writes it: what the kubelet itself compares when it starts."""
    entries = _go_list(data.pod_device_entries, _go_entry)
    text = (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries}"
        f" RegisteredDevices:(map[string][]string){_go_map(data.registered_devices, key=str.encode)}}}"
    )
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _go_entry(entry: _Entry) -> str:
    answer = None if entry.alloc_resp is None else base64.b64decode(entry.alloc_resp, validate=True)
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name}"
        f" ResourceName:(string){entry.resource_name}"
        f" DeviceIDs:(checkpoint.DevicesPerNUMA){_go_map(entry.device_ids, key=int)}"
        f" AllocResp:([]uint8){_go_list(answer, str)}}}"
    )


def _go_list(items: Iterable[T] | None, write: Callable[[T], str]) -> str:
    return "<nil>" if items is None else f"[{' '.join(write(item) for item in items)}]"


def _go_map(ids: Mapping[str, list[str] | None] | None, *, key: Callable[[str], Any]) -> str:
    if ids is None:
        return "<nil>"
    return f"map[{' '.join(f'{name}:{_go_list(ids[name], str)}' for name in sorted(ids, key=key))}]"
