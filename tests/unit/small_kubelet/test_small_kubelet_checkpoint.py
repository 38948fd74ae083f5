"""The small kubelet's checkpoint: the kubelet's own shape and checksum."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from aliquot_standalone.kubelet import checkpoint
from aliquot_standalone.kubelet.checkpoint import CheckpointError
from aliquot_standalone.kubelet.holdings import Holding, HoldingKey

# Written by the kubelet's own checkpoint package, version 1.36.3.
BY_THE_KUBELET = [
    (
        '{"Data":{"PodDeviceEntries":[{"PodUID":"u-1","ContainerName":"main","ResourceName":"aliquot.dev/compute",'
        '"DeviceIDs":{"-1":["g0-p00","g0-p01"],"0":["x"],"10":["y"],"2":["z"]},"AllocResp":"AArI/w=="},'
        '{"PodUID":"u-2","ContainerName":"b","ResourceName":"r","DeviceIDs":{},"AllocResp":""},'
        '{"PodUID":"u-3 ä\\"q","ContainerName":"b","ResourceName":"r","DeviceIDs":null,"AllocResp":null}],'
        '"RegisteredDevices":{"a":[],"b":["1","2"],"c":null}},"Checksum":483560905}'
    ),
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"a":[],"b":["1","2"],"c":null}},"Checksum":1448935935}',
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}',
]
HELD = Holding(ids_by_numa={-1: ["g0-p00", "g0-p01"], 2: ["z"]}, answer=b"\0\n\xc8\xff")


@pytest.mark.parametrize("content", BY_THE_KUBELET)
def test_files_of_the_real_kubelet_are_read(content: str) -> None:
    """The checksum is the kubelet's, over its own way of printing the data."""
    read = checkpoint.decode(content.encode())
    assert set(read.registered) <= {"a", "b", "c"}
    assert len(read.holdings) == len(json.loads(content)["Data"]["PodDeviceEntries"] or [])


def test_holdings_come_back_as_they_were() -> None:
    """Ids by NUMA node and the plugin's answer survive, byte for byte."""
    key = HoldingKey("uid", "main", "aliquot.dev/compute")
    content = checkpoint.encode([(key, HELD)], {"aliquot.dev/compute": ["g0-p00"]})
    read = checkpoint.decode(content)
    assert read.holdings == {key: HELD}
    assert read.registered == {"aliquot.dev/compute": ["g0-p00"]}


def test_shape_is_the_kubelets() -> None:
    """Readers of the kubelet's file find every field under its name."""
    key = HoldingKey("uid", "main", "r")
    data = json.loads(checkpoint.encode([(key, HELD)], {"r": ["g0-p00"]}))["Data"]
    assert data["RegisteredDevices"] == {"r": ["g0-p00"]}
    assert data["PodDeviceEntries"] == [
        {
            "PodUID": "uid",
            "ContainerName": "main",
            "ResourceName": "r",
            "DeviceIDs": {"-1": ["g0-p00", "g0-p01"], "2": ["z"]},
            "AllocResp": "AArI/w==",
        }
    ]


def test_nothing_held_is_written_as_null() -> None:
    """The kubelet writes an empty list of holdings as null; the checksum tells the two apart."""
    assert checkpoint.encode([], {}) == BY_THE_KUBELET[2].encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}',
        BY_THE_KUBELET[0].replace("g0-p00", "g0-p99").encode(),
        BY_THE_KUBELET[0].replace("AArI/w==", "not base64").encode(),
        BY_THE_KUBELET[0].replace('"-1"', '"x"').encode(),
        BY_THE_KUBELET[0][:100].encode(),
    ],
)
def test_broken_files_are_refused(content: bytes) -> None:
    """What was cut, changed or never a checkpoint is an error with a reason."""
    with pytest.raises(CheckpointError):
        checkpoint.decode(content)


def test_a_kubelet_goes_on_without_its_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A missing file is nothing; a broken one is said in the log and then nothing."""
    path = tmp_path / "kubelet_internal_checkpoint"
    assert checkpoint.read(path) is None
    path.write_bytes(b"rubbish")
    with caplog.at_level(logging.ERROR):
        assert checkpoint.read(path) is None
    assert "without the checkpoint" in caplog.text
