"""CDI specs: read strictly, written deterministically, merged as a runtime would."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_deviceplugin.cdi.errors import SpecError
from aliquot_deviceplugin.cdi.merging import merge_edits
from aliquot_deviceplugin.cdi.spec import (
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    decode_spec,
    encode_spec,
    lowest_version,
    spec_of,
)


def whole_spec(**changes: Any) -> dict[str, Any]:
    """A spec that uses every field."""
    edits = {
        "env": ["A=1", "EMPTY="],
        "deviceNodes": [
            {
                "path": "/dev/a",
                "hostPath": "/host/a",
                "type": "c",
                "major": 195,
                "minor": 255,
                "fileMode": 438,
                "permissions": "rw",
                "uid": 0,
                "gid": 44,
            }
        ],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "bind"}],
        "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["x"], "env": ["B=2"], "timeout": 3}],
        "additionalGids": [44],
    }
    spec: dict[str, Any] = {
        "cdiVersion": "0.7.0",
        "kind": "aliquot.dev/slice",
        "annotations": {"a": "b"},
        "devices": [{"name": "0", "annotations": {"c": "d"}, "containerEdits": edits}],
        "containerEdits": {"env": ["C=3"]},
    }
    return spec | changes


def test_every_field_survives_reading_and_writing() -> None:
    """What is read is written again with the same fields under the same names."""
    raw = whole_spec()
    spec = decode_spec(json.dumps(raw).encode(), where="test")
    assert json.loads(encode_spec(spec)) == raw


def test_the_same_spec_gives_the_same_bytes() -> None:
    """The order in which annotations came does not show."""
    one = spec_of(whole_spec(annotations={"a": "1", "b": "2"}), where="test")
    other = spec_of(whole_spec(annotations={"b": "2", "a": "1"}), where="test")
    assert encode_spec(one) == encode_spec(other)


DEVICE = whole_spec()["devices"][0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cdiVersion": "2.0.0"}, "CDI version '2.0.0' is not understood"),
        ({"cdiVersion": 1}, "Expected `str`"),
        ({"kind": "gpu"}, "no kind of device"),
        ({"kind": "1aliquot.dev/slice"}, "no kind of device"),
        ({"devices": []}, "holds no device"),
        ({"devices": [DEVICE, DEVICE]}, "holds a device twice"),
        ({"devices": [{"name": "-x", "containerEdits": {}}]}, "no name of a device"),
        ({"devices": [{"name": "x"}]}, "containerEdits"),
        ({"containerEdits": {"netDevices": []}}, "unknown field `netDevices`"),
        ({"containerEdits": {"env": ["NOVALUE"]}}, "no environment variable"),
        ({"containerEdits": {"env": ["=x"]}}, "no environment variable"),
        ({"containerEdits": {"hooks": [{"hookName": "never", "path": "/x"}]}}, "no hook's name"),
        ({"containerEdits": {"hooks": [{"hookName": "poststop", "path": "x"}]}}, "no absolute path"),
        (
            {"containerEdits": {"hooks": [{"hookName": "poststop", "path": "/x", "env": ["y"]}]}},
            "no environment variable",
        ),
        ({"containerEdits": {"mounts": [{"hostPath": "a", "containerPath": "/b"}]}}, "no absolute path"),
        ({"containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": ""}]}}, "no absolute path"),
        ({"containerEdits": {"deviceNodes": [{"path": "dev/a"}]}}, "no absolute path"),
        ({"containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "a"}]}}, "no absolute path"),
        ({"containerEdits": {"deviceNodes": [{"path": "/dev/a", "type": "x"}]}}, "type or permissions"),
        ({"containerEdits": {"deviceNodes": [{"path": "/dev/a", "permissions": "rx"}]}}, "type or permissions"),
    ],
)
def test_what_a_runtime_would_refuse_is_refused_with_its_reason(changes: dict[str, Any], says: str) -> None:
    """The error names the file and what is wrong in it."""
    with pytest.raises(SpecError, match=says) as caught:
        spec_of(whole_spec(**changes), where="/etc/cdi/x.json")
    assert caught.value.where == "/etc/cdi/x.json"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    """Cut off, of another shape, not UTF-8, nested without end: one kind of error."""
    with pytest.raises(SpecError):
        decode_spec(content, where="test")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["0.6.0", "a.b/c", "/x"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["cdiVersion", "kind", "devices", "containerEdits", "env", "mounts", "name", "hooks"])
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_document_is_a_spec_or_a_spec_error(raw: Any) -> None:
    """The reader has no third way out, and what it takes it gives back."""
    try:
        spec = spec_of(raw, where="test")
    except SpecError:
        return
    assert decode_spec(encode_spec(spec), where="test") == spec


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_spec_error(content: bytes) -> None:
    """Garbage in the folder never raises anything else."""
    with pytest.raises(SpecError, match=r"^test: "):
        decode_spec(content, where="test")


def test_the_version_is_the_lowest_that_the_fields_need() -> None:
    """Old runtimes refuse what is newer than they are, even if they knew all its fields."""
    plain = spec_of(whole_spec(annotations={}, devices=[{"name": "0", "containerEdits": {}}]), where="test")
    annotated = msgspec.structs.replace(plain, annotations={"a": "b"})
    dotted = msgspec.structs.replace(plain, kind="a.b/c.d")
    grouped = msgspec.structs.replace(annotated, container_edits=ContainerEdits(additional_gids=(1,)))
    versions = [lowest_version(spec) for spec in (plain, annotated, dotted, grouped)]
    assert versions == ["0.5.0", "0.6.0", "0.6.0", "0.7.0"]


def test_merging_keeps_the_first_place_and_the_last_content() -> None:
    """As a runtime would: one node, one mount, one variable for each path or name; a hook twice is once."""
    hook = Hook(hook_name="createContainer", path="/hook", args=("a",))
    other = Hook(hook_name="createContainer", path="/hook", args=("b",))
    first = ContainerEdits(
        env=("A=1", "B=1"),
        device_nodes=(DeviceNode(path="/dev/ctl"), DeviceNode(path="/dev/0")),
        mounts=(Mount(host_path="/old", container_path="/lib"), Mount(host_path="/x", container_path="/x")),
        hooks=(hook,),
        additional_gids=(44,),
    )
    second = ContainerEdits(
        env=("A=2",),
        device_nodes=(DeviceNode(path="/dev/ctl"), DeviceNode(path="/dev/1")),
        mounts=(Mount(host_path="/new", container_path="/lib"),),
        hooks=(hook, other),
        additional_gids=(44, 45),
    )
    merged = merge_edits([first, second])
    assert merged.env == ("A=2", "B=1")
    assert [node.path for node in merged.device_nodes] == ["/dev/ctl", "/dev/0", "/dev/1"]
    assert [mount.host_path for mount in merged.mounts] == ["/new", "/x"]
    assert merged.hooks == (hook, other)
    assert merged.additional_gids == (44, 45)


edits = st.builds(
    ContainerEdits,
    env=st.lists(st.sampled_from(["A=1", "A=2", "B=1"])).map(tuple),
    mounts=st.lists(
        st.builds(Mount, host_path=st.sampled_from(["/a", "/b"]), container_path=st.sampled_from(["/c", "/d"]))
    ).map(tuple),
)


@given(st.lists(edits, max_size=4))
def test_merging_once_more_changes_nothing(parts: list[ContainerEdits]) -> None:
    """Merged edits hold each thing once."""
    merged = merge_edits(parts)
    assert merge_edits([merged, merged]) == merged
