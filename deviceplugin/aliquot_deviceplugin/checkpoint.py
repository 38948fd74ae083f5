"""The kubelet's own record of who holds which device ids: its device-manager checkpoint.

It knows what PodResources does not tell: the pod's UID, ordinary init containers, and the CDI name that we answered and
that the kubelet will hand to the runtime. It is written whole (a new file renamed over the old) before any container
that it records is created. It is not a published interface, so whatever is odd about it is an error with a name.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from aliquot_agent.starting.kubelet_view import KubeletViewError, Recorded
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb

FILE = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
_REMEDY = "the agent goes by PodResources; report the kubelet's version"


class CheckpointError(KubeletViewError):
    """The kubelet's checkpoint can't be used."""


class CheckpointMissingError(CheckpointError):
    """The kubelet has written none: nothing was ever allocated, or it lies elsewhere."""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One container and resource, as Go writes it: nothing is null or left out at will."""

    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    # By NUMA node; -1 stands for none.
    device_ids: dict[int, list[str] | None] | None = msgspec.field(name="DeviceIDs")
    # A serialised ContainerAllocateResponse.
    alloc_resp: bytes | None = None


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    """What is summed up by the checksum, which only Go code can compute again."""

    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries")


class _Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    data: _Data = msgspec.field(name="Data")


def decode_checkpoint(raw: bytes, *, where: str = FILE) -> tuple[Recorded, ...]:
    """Read the record, or raise `CheckpointError`."""
    try:
        entries = msgspec.json.decode(raw, type=_Checkpoint).data.entries or []
        return tuple(_recorded(entry) for entry in entries)
    except (msgspec.DecodeError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"not as kubelets write it: {error}", where=where, remedy=_REMEDY) from error


def _recorded(entry: _Entry) -> Recorded:
    by_numa = entry.device_ids or {}
    answer = pb.ContainerAllocateResponse.FromString(entry.alloc_resp or b"")
    return Recorded(
        uid=entry.pod_uid,
        container=entry.container_name,
        resource=entry.resource_name,
        ids=frozenset(device for some in by_numa.values() for device in some or ()),
        names=tuple(device.name for device in answer.cdi_devices),
    )


class CheckpointReader:
    """Reads the checkpoint when it is another file than the last time."""

    def __init__(self, path: str = FILE) -> None:
        self._path = Path(path)
        self._version: tuple[int, int, int] | None = None
        self._recorded: tuple[Recorded, ...] = ()

    def read(self) -> tuple[Recorded, ...]:
        """Return the record as it is now."""
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                version = (found.st_ino, found.st_mtime_ns, found.st_size)
                if version != self._version:
                    self._recorded = decode_checkpoint(file.read(), where=str(self._path))
                    self._version = version
        except FileNotFoundError as error:
            raise CheckpointMissingError("there is no such file", where=str(self._path), remedy=_REMEDY) from error
        except OSError as error:
            raise CheckpointError(str(error.strerror), where=str(self._path), remedy=_REMEDY) from error
        return self._recorded
