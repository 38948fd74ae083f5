"""The kubelet's device-manager checkpoint, as its agent-side reader understands it."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_deviceplugin.checkpoint import (
    CheckpointError,
    CheckpointMissingError,
    CheckpointReader,
    decode_checkpoint,
)
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb

COMPUTE = "aliquot.dev/compute"


def entry(
    *, uid: str = "u-1", container: str = "main", by_numa: Any = None, names: tuple[str, ...] = ("aliquot.dev/slice=1",)
) -> dict[str, Any]:
    """One entry as the kubelet writes it."""
    response = pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=name) for name in names])
    return {
        "PodUID": uid,
        "ContainerName": container,
        "ResourceName": COMPUTE,
        "DeviceIDs": {"0": ["a-00", "a-01"]} if by_numa is None else by_numa,
        "AllocResp": base64.b64encode(response.SerializeToString()).decode(),
    }


def checkpoint(*entries: dict[str, Any]) -> bytes:
    """A whole file; Go writes null for no entries."""
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": {COMPUTE: ["a-00", "a-01"]}}
    return msgspec.json.encode({"Data": data, "Checksum": 2923144236})


def test_entries_are_read() -> None:
    """Pod, container, ids over all NUMA nodes, and the CDI names that were answered."""
    raw = checkpoint(
        entry(by_numa={"-1": ["a-00"], "1": ["b-01", "a-00"]}),
        entry(uid="u-2", container="init", names=()),
    )

    assert decode_checkpoint(raw) == (
        Recorded(
            uid="u-1",
            container="main",
            resource=COMPUTE,
            ids=frozenset({"a-00", "b-01"}),
            names=("aliquot.dev/slice=1",),
        ),
        Recorded(uid="u-2", container="init", resource=COMPUTE, ids=frozenset({"a-00", "a-01"}), names=()),
    )


def test_what_go_leaves_null() -> None:
    """No entries, no ids of a node, no answer: Go writes null, and it means none."""
    nothing = entry(by_numa={"0": None}) | {"AllocResp": None}

    assert decode_checkpoint(checkpoint()) == ()
    assert decode_checkpoint(checkpoint(nothing))[0].ids == frozenset()
    assert decode_checkpoint(checkpoint(nothing | {"DeviceIDs": None}))[0].names == ()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(checkpoint(entry())[:-40], id="truncated"),
        pytest.param(b"[]", id="not an object"),
        pytest.param(b'{"Data":{}}', id="no entries named"),
        pytest.param(checkpoint(entry() | {"AllocResp": "/w=="}), id="an answer that is none"),
        pytest.param(checkpoint(entry() | {"AllocResp": "%"}), id="an answer that is not base64"),
        pytest.param(checkpoint(entry() | {"DeviceIDs": ["a-00"]}), id="the format of 2020"),
    ],
)
def test_unusable(raw: bytes) -> None:
    """A file that is not as kubelets write it is an error that names the file."""
    with pytest.raises(CheckpointError, match="kubelet_internal_checkpoint"):
        decode_checkpoint(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
ENTRIES = st.fixed_dictionaries(
    {
        "PodUID": JSON | st.text(),
        "ContainerName": st.text(max_size=5),
        "ResourceName": st.text(max_size=5),
        "DeviceIDs": JSON | st.dictionaries(st.integers(-2, 2).map(str), st.lists(st.text(max_size=5)), max_size=3),
        "AllocResp": JSON | st.binary(max_size=30).map(lambda raw: base64.b64encode(raw).decode()),
    }
)


@given(
    st.binary(max_size=200)
    | JSON.map(msgspec.json.encode)
    | st.lists(ENTRIES, max_size=3).map(lambda e: checkpoint(*e))
)
@example(b'{"Data":{"PodDeviceEntries":null},"x":' + b"[" * 100_000)
@example(checkpoint(entry(uid="u-1")).replace(b"u-1", b"\xff"))
def test_whatever_the_file_holds(raw: bytes) -> None:
    """Any bytes are a record or a named error, never another one."""
    with contextlib.suppress(CheckpointError):
        assert all(isinstance(recorded, Recorded) for recorded in decode_checkpoint(raw))


def test_read_again_only_when_it_is_another_file(tmp_path: Path) -> None:
    """The same file is decoded once; a file renamed over it is read, even of the same size and time."""
    path = tmp_path / "checkpoint"
    path.write_bytes(checkpoint(entry(uid="u-1")))
    reader = CheckpointReader(str(path))
    first = reader.read()
    again = reader.read()
    newer = tmp_path / "newer"
    newer.write_bytes(checkpoint(entry(uid="u-2")))
    found = path.stat()
    os.utime(newer, ns=(found.st_atime_ns, found.st_mtime_ns))
    newer.rename(path)

    assert again is first
    assert [recorded.uid for recorded in reader.read()] == ["u-2"]


def test_a_bad_file_does_not_stay(tmp_path: Path) -> None:
    """After a missing and a garbled file, a good one is read."""
    path = tmp_path / "checkpoint"
    reader = CheckpointReader(str(path))
    with pytest.raises(CheckpointMissingError, match=str(path)):
        reader.read()
    path.write_bytes(b"garbage")
    with pytest.raises(CheckpointError, match=str(path)):
        reader.read()
    with pytest.raises(CheckpointError, match=str(path)):
        reader.read()
    path.write_bytes(checkpoint(entry()))

    assert len(reader.read()) == 1


def test_unreadable_file(tmp_path: Path) -> None:
    """A folder in its place is a named error."""
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        CheckpointReader(str(tmp_path)).read()
