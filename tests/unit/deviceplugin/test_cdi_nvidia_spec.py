"""A container's part of the driver from the node's NVIDIA CDI spec: the right GPU's, or an error that says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.nvidia_spec import LARGEST_FILE
from support.cdi import GPUS
from support.driver_files import FIRST, SPEC, as_text, changed, found, node_with_spec, nvidia_yaml, paths
from support.golden import assert_golden


def as_it_is(_raw: Any) -> None:
    """No change."""


def test_a_gpu_of_the_nvidia_spec_is_inlined_as_the_golden_file_says() -> None:
    """Common edits and the GPU's own: nodes, mounts, hooks in their order."""
    assert_golden("edits-nvidia-gpu0.json", as_text(found(node_with_spec()).edits_for(FIRST)))


def test_json_says_the_same_as_yaml() -> None:
    """Both are written by the tool."""
    as_json = node_with_spec(changed(as_it_is), path="/etc/cdi/nvidia.json")
    assert found(as_json).edits_for(FIRST) == found(node_with_spec()).edits_for(FIRST)


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (DriverGpu(uuid=GPUS[1], index=7, minor=1), "by uuid, whatever the index"),
        (DriverGpu(uuid="GPU-unnamed", index=7, minor=1), "by device node, passing over MIG's part of the GPU"),
        (DriverGpu(uuid="GPU-unnamed", index=1, minor=None), "by index, where the driver tells no minor"),
    ],
)
def test_a_gpu_is_found_in_the_surest_way_there_is(gpu: DriverGpu, why: str) -> None:
    """The second GPU and nothing of the first or of its MIG parts."""
    nodes = paths(found(node_with_spec()).edits_for(gpu))
    assert "/dev/nvidia1" in nodes, why
    assert "/dev/nvidia0" not in nodes
    assert not any("caps" in node for node in nodes)


def test_a_driver_container_keeps_its_own_paths() -> None:
    """There the host's device node lies elsewhere than the container's."""

    def moved(raw: Any) -> None:
        raw["devices"][0]["containerEdits"]["deviceNodes"] = [
            {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0"}
        ]
        del raw["devices"][1]

    node = node_with_spec(changed(moved), path="/etc/cdi/nvidia.json")
    node.device("/run/nvidia/driver/dev/nvidia0")
    assert found(node).edits_for(FIRST).device_nodes[-1].host_path == "/run/nvidia/driver/dev/nvidia0"


def device(raw: Any, index: int) -> Any:
    """The nodes of one device of the spec."""
    return raw["devices"][index]["containerEdits"]["deviceNodes"]


@pytest.mark.parametrize(
    ("change", "gpu", "says"),
    [
        (lambda raw: raw.update(cdiVersion="9.0.0"), FIRST, "CDI version '9.0.0' is not understood"),
        (lambda raw: raw["containerEdits"].update(netDevices=[]), FIRST, "unknown field `netDevices`"),
        (lambda raw: raw["devices"].clear(), FIRST, "holds no device"),
        (lambda raw: raw["containerEdits"]["mounts"].append({"hostPath": "x"}), FIRST, "containerPath"),
        (as_it_is, DriverGpu(uuid="GPU-new", index=9, minor=9), "does not have GPU GPU-new"),
        (lambda raw: device(raw, 1)[0].update(path="/dev/nvidia1"), FIRST, "stands for /dev/nvidia1, but"),
        (lambda raw: device(raw, 1)[0].update(hostPath="/dev/nvidia1"), FIRST, "stands for /dev/nvidia1, but"),
        (lambda raw: device(raw, 1).append({"path": "/dev/nvidia1"}), FIRST, "stands for /dev/nvidia0, /dev/nvidia1"),
        (lambda raw: device(raw, 1).pop(0), FIRST, "stands for no GPU's device node"),
        (lambda raw: device(raw, 0).pop(0), DriverGpu(uuid="x", index=0), "stands for no GPU's device node"),
        (
            lambda raw: raw["containerEdits"]["deviceNodes"].append({"path": "/dev/nvidia1"}),
            FIRST,
            "gives every container /dev/nvidia1",
        ),
        (
            lambda raw: raw["containerEdits"]["mounts"][1].update(hostPath="/usr/bin/gone"),
            FIRST,
            r"not there: /usr/bin/gone \(1 in all\)",
        ),
        (lambda raw: raw["containerEdits"]["hooks"][0].update(path="/gone"), FIRST, "not there: /gone"),
        (lambda raw: device(raw, 1).append({"path": "/dev/dri/gone"}), FIRST, "not there: /dev/dri/gone"),
    ],
)
def test_a_spec_that_can_not_be_right_is_refused(change: Callable[[Any], object], gpu: DriverGpu, says: str) -> None:
    """The error names the file, what is wrong, and the command that mends it; nothing is handed out."""
    node = node_with_spec(changed(change), path="/etc/cdi/nvidia.json")
    with pytest.raises(DriverFilesError, match=says) as caught:
        found(node).edits_for(gpu)
    assert caught.value.where == "/etc/cdi/nvidia.json"
    assert "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.json" in caught.value.remedy


def test_a_node_that_the_runtime_makes_itself_need_not_exist() -> None:
    """With type and number in the spec the host's file is not looked at."""
    node = node_with_spec(
        changed(lambda raw: device(raw, 1).append({"path": "/dev/made", "type": "c", "major": 195, "minor": 7})),
        path="/etc/cdi/nvidia.json",
    )
    assert "/dev/made" in paths(found(node).edits_for(FIRST))


BOMB = b"a: &a [x, x]\nb: &b [*a, *a]\nkind: nvidia.com/gpu\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a CDI spec"),
        (b"kind: nvidia.com/gpu\n  bad: [", "not readable"),
        (b"\xff\xfe\x00nvidia.com/gpu", "not readable"),
        (BOMB, "aliases"),
        (b"kind: nvidia.com/gpu\nx: " + b"[" * 30 + b"]" * 30, "nested too deep"),
        (b"# nvidia.com/gpu\n" + b"- 1\n" * 200_001, "too many parts"),
        (b"!!python/object/apply:os.system [nvidia.com/gpu]", "not readable"),
        (b"#" * (LARGEST_FILE + 1), "larger than"),
    ],
)
def test_garbled_yaml_is_an_error_and_no_reason_to_search(content: bytes, says: str) -> None:
    """What containers get must not depend on whether a file could just be read."""
    with pytest.raises(DriverFilesError, match=says) as caught:
        found(node_with_spec(content))
    assert caught.value.where == SPEC


@given(st.binary(max_size=120) | st.text(max_size=60).map(lambda text: f"kind: nvidia.com/gpu\n{text}".encode()))
def test_any_yaml_is_a_spec_or_a_driver_files_error(content: bytes) -> None:
    """The reader has no third way out."""
    with pytest.raises(DriverFilesError):
        found(node_with_spec(content))


@given(st.integers(0, 3000), st.sampled_from([b"", b"\x00", b"[", b"*a", b"\n  ", b": ", b"&a "]))
def test_a_damaged_spec_gives_right_edits_or_an_error(cut: int, junk: bytes) -> None:
    """A spec that is cut or damaged anywhere never gives another GPU away."""
    whole = nvidia_yaml()
    try:
        edits = found(node_with_spec(whole[:cut] + junk + whole[cut + len(junk) :])).edits_for(FIRST)
    except DriverFilesError:
        return
    assert "/dev/nvidia0" in paths(edits)
    assert "/dev/nvidia1" not in paths(edits)


def test_an_unreadable_spec_is_named() -> None:
    """A file that is listed but can't be opened, as under a wrong SELinux label."""
    node = node_with_spec()
    node.link("/etc/cdi/nvidia2.yaml", "/gone")
    with pytest.raises(DriverFilesError, match=r"nvidia2\.yaml: No such file"):
        found(node)


def test_other_vendors_and_our_own_specs_are_left_alone() -> None:
    """Garbled or not, they have no say; ours would be a hundred to parse."""
    node = node_with_spec()
    node.file("/etc/cdi/other.yaml", b"{")
    node.file("/etc/cdi/vendor.json", changed(lambda raw: raw.update(kind="vendor.com/gpu")))
    node.file("/var/run/cdi/aliquot.dev-slice_0.json", b"nvidia.com/gpu")
    node.file("/var/run/cdi/nvidia.yaml.unfinished", b"nvidia.com/gpu")
    assert found(node).source == f"NVIDIA CDI spec {SPEC}"


def test_the_later_folder_wins() -> None:
    """As runtimes rank them: /var/run/cdi over /etc/cdi, also where /var/run is a link."""
    node = node_with_spec()
    node.link("/var/run", "/run")
    node.file("/run/cdi/nvidia.json", changed(lambda raw: device(raw, 1).pop()))
    assert "/dev/dri/renderD128" not in paths(found(node).edits_for(FIRST))


def test_two_specs_that_contradict_each_other_are_refused() -> None:
    """In one folder neither outranks the other; if they agree there is no harm."""
    node = node_with_spec()
    node.file("/etc/cdi/nvidia.json", changed(as_it_is))
    assert "/dev/nvidia0" in paths(found(node).edits_for(FIRST))
    node.file("/etc/cdi/nvidia.json", changed(lambda raw: device(raw, 1).pop()))
    with pytest.raises(DriverFilesError, match=r"nvidia\.json and .*nvidia\.yaml say different things"):
        found(node).edits_for(FIRST)
