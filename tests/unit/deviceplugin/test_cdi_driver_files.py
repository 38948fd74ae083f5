"""A container's part of the driver: from the node's NVIDIA CDI spec, or found."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.inventory import Gpu
from aliquot_deviceplugin.cdi.discovery import DriverPlace, discover
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu, SimulatedDriverFiles
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.finding import DriverSettings, DriverSource, find_driver_files, node_driver_files
from aliquot_deviceplugin.cdi.nvidia_spec import LARGEST_FILE
from aliquot_deviceplugin.cdi.spec import ContainerEdits
from support.cdi import GPUS
from support.golden import GOLDEN, assert_golden
from support.ld_caches import ld_cache
from support.nodes import VERSION, FakeNode, lay_libraries, with_driver

SPEC = "/etc/cdi/nvidia.yaml"
FIRST, SECOND = (DriverGpu(uuid=uuid, index=index, minor=index) for index, uuid in enumerate(GPUS))


def nvidia_yaml() -> bytes:
    """The hand-written spec."""
    return (GOLDEN / "nvidia.yaml").read_bytes()


def changed(change: Callable[[Any], object]) -> bytes:
    """The hand-written spec with one thing different, as JSON."""
    raw = yaml.safe_load(nvidia_yaml())
    change(raw)
    return json.dumps(raw).encode()


def node_with_spec(content: bytes | None = None, *, path: str = SPEC) -> FakeNode:
    """A node with driver, toolkit and CDI spec."""
    node = with_driver()
    node.file("/usr/bin/nvidia-cdi-hook")
    node.device(
        "/dev/dri/card1", "/dev/dri/renderD128", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"
    )
    node.file(path, nvidia_yaml() if content is None else content)
    return node


def as_it_is(_raw: Any) -> None:
    """No change."""


def found(node: FakeNode, source: DriverSource = DriverSource.AUTO) -> DriverFiles:
    """The driver files by the usual settings."""
    return find_driver_files(
        node, settings=DriverSettings(source=source), is_ours=lambda name: name.startswith("aliquot")
    )


def paths(edits: ContainerEdits) -> list[str]:
    """The device nodes' paths."""
    return [node.path for node in edits.device_nodes]


def as_text(edits: ContainerEdits) -> str:
    """For golden files."""
    return json.dumps(msgspec.to_builtins(edits), indent=2) + "\n"


# --- the node's NVIDIA CDI spec ---------------------------------------------------------------------------------------


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


# --- found by ourselves -----------------------------------------------------------------------------------------------


def test_a_discovered_driver_is_mounted_as_the_golden_file_says() -> None:
    """All names of all libraries where loaders look, binaries, firmware, socket, nodes; nothing for graphics or MIG."""
    assert_golden("edits-discovered-gpu0.json", as_text(found(with_driver()).edits_for(FIRST)))


@pytest.mark.parametrize("folder", ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", "/opt/odd"])
def test_libraries_appear_where_any_loader_looks(folder: str) -> None:
    """Wherever the node keeps them, a container of Debian and one of RHEL find them, each by its soname."""
    node = with_driver(folder=folder)
    node.file("/etc/ld.so.cache", ld_cache(("libcuda.so.1", f"{folder}/libcuda.so.1", 0x0303)))
    mounts = {mount.container_path: mount.host_path for mount in found(node).edits_for(FIRST).mounts}
    for seen in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", folder):
        assert mounts[f"{seen}/libcuda.so.1"] == f"{folder}/libcuda.so.{VERSION}"
        assert mounts[f"{seen}/libnvidia-nvvm.so.4"] == f"{folder}/libnvidia-nvvm.so.{VERSION}"


def test_a_merged_lib_folder_is_mounted_once() -> None:
    """The loader's cache says /lib/…, which is /usr/lib/…: one mount for each name and folder."""
    node = with_driver()
    node.file("/etc/ld.so.cache", ld_cache(("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1", 0x0303)))
    places = [mount.container_path for mount in found(node).edits_for(FIRST).mounts]
    assert not any(place.startswith("/lib/x86_64") for place in places)
    assert len(places) == len(set(places))


def test_alternatives_lead_to_the_files_behind_them() -> None:
    """Debian keeps the files in a folder of their own and links to them through /etc/alternatives."""
    node = with_driver(folder="/usr/lib/x86_64-linux-gnu/nvidia/current")
    node.link("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/etc/alternatives/libcuda")
    node.link("/etc/alternatives/libcuda", "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
    mounts = {mount.container_path: mount.host_path for mount in found(node).edits_for(FIRST).mounts}
    behind = f"/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.{VERSION}"
    assert mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] == behind
    assert "/usr/lib64/libnvidia-ml.so.1" in mounts


def test_leftovers_of_another_driver_are_not_mixed_in() -> None:
    """libcuda.so.1 says which version is in force; a library of another one would not load with it."""
    node = with_driver()
    node.file("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.1.2")
    node.file("/usr/lib/firmware/nvidia/535.1.2/gsp_ga10x.bin")
    assert not any("535" in mount.host_path for mount in found(node).edits_for(FIRST).mounts)


def test_a_driver_container_is_searched_below_its_root() -> None:
    """The host's paths carry the root, the container's do not, and links stay inside it."""
    node = with_driver(root="/run/nvidia/driver")
    node.link(
        "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-cfg.so.1",
        f"/usr/lib/x86_64-linux-gnu/libnvidia-cfg.so.{VERSION}",
    )
    node.file(f"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-cfg.so.{VERSION}")
    edits = discover(node, place=DriverPlace(root="/run/nvidia/driver")).edits_for(FIRST)
    mounts = {mount.container_path: mount.host_path for mount in edits.mounts}
    folder = "/usr/lib/x86_64-linux-gnu"
    assert mounts[f"{folder}/libnvidia-cfg.so.1"] == f"/run/nvidia/driver{folder}/libnvidia-cfg.so.{VERSION}"
    assert mounts["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert all(host.startswith("/run/nvidia/driver/") for host in mounts.values())


def test_device_nodes_of_a_driver_container_are_named_by_their_host_path() -> None:
    """Where only the driver container has them."""
    node = with_driver(root="/run/nvidia/driver")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia0"):
        node.remove(f"/dev/{name}")
        node.device(f"/run/nvidia/driver/dev/{name}")
    edits = discover(node, place=DriverPlace(root="/run/nvidia/driver")).edits_for(FIRST)
    assert all(given.source == f"/run/nvidia/driver{given.path}" for given in edits.device_nodes)


@pytest.mark.parametrize(
    "gone", ["/dev/nvidia-modeset", "/run/nvidia-persistenced/socket", "/usr/bin/nvidia-debugdump"]
)
def test_what_a_container_can_do_without_may_be_missing(gone: str) -> None:
    """The rest is given all the same."""
    node = with_driver()
    node.remove(gone)
    edits = found(node).edits_for(FIRST)
    assert gone not in paths(edits) + [mount.container_path for mount in edits.mounts]
    assert "/dev/nvidia0" in paths(edits)


def test_a_persistence_socket_that_is_none_is_left_out() -> None:
    """A folder left by a mount that came too early must not be mounted as the socket."""
    node = with_driver()
    node.file("/run/nvidia-persistenced/socket")
    assert not any("persistenced" in mount.container_path for mount in found(node).edits_for(FIRST).mounts)


def test_a_node_without_driver_says_so() -> None:
    """The agent then advertises nothing and publishes this sentence."""
    with pytest.raises(
        DriverFilesError, match=r"driver files under /: no libcuda\.so\.1 of an NVIDIA driver was found; install"
    ):
        found(FakeNode())


def test_a_library_that_is_no_drivers_is_no_driver() -> None:
    """A stub of the CUDA toolkit bears the same name without a version."""
    node = FakeNode()
    node.file("/usr/lib64/libcuda.so.1")
    with pytest.raises(DriverFilesError, match="no libcuda"):
        found(node)


@pytest.mark.parametrize("gone", ["/dev/nvidiactl", "/dev/nvidia-uvm"])
def test_a_driver_whose_modules_are_not_loaded_says_so(gone: str) -> None:
    """Without these nodes no CUDA program starts; a file in the place of a node does not count."""
    node = with_driver()
    node.file(gone)
    with pytest.raises(DriverFilesError, match=f"{gone} is no device; load the driver's modules"):
        found(node)


def test_a_gpu_without_node_or_number_says_so() -> None:
    """Lost at run time, or not told by the driver."""
    files = found(with_driver(gpus=1))
    with pytest.raises(DriverFilesError, match="/dev/nvidia1 is no device"):
        files.edits_for(SECOND)
    with pytest.raises(DriverFilesError, match="minor number"):
        files.edits_for(DriverGpu(uuid=GPUS[0], index=0))


# --- choosing and keeping up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "source", "says"),
    [
        (node_with_spec(), DriverSource.AUTO, "NVIDIA CDI spec"),
        (node_with_spec(), DriverSource.DISCOVER, f"driver {VERSION} found"),
        (with_driver(), DriverSource.AUTO, f"driver {VERSION} found"),
        (node_with_spec(b"garbled"), DriverSource.DISCOVER, f"driver {VERSION} found"),
    ],
)
def test_the_operators_spec_wins_unless_told_otherwise(node: FakeNode, source: DriverSource, says: str) -> None:
    """And the source says which it was."""
    assert says in found(node, source).source


def test_a_required_spec_that_is_missing_says_how_to_write_one() -> None:
    """No search behind the operator's back."""
    with pytest.raises(DriverFilesError, match=r"/etc/cdi or /var/run/cdi: no CDI spec .*nvidia-ctk cdi generate"):
        found(with_driver(), DriverSource.NVIDIA_CDI)


def keeping_up(node: FakeNode) -> DriverFiles:
    """Driver files that follow the node."""
    return node_driver_files(node, settings=DriverSettings(), is_ours=lambda name: name.startswith("aliquot"))


def test_files_are_found_again_only_when_they_changed(caplog: pytest.LogCaptureFixture) -> None:
    """Our own writes into the spec folder are no change; a new spec is, and the log says which source counts."""
    node = node_with_spec()
    files = keeping_up(node)
    with caplog.at_level(logging.INFO):
        files.edits_for(FIRST)
        node.file("/etc/cdi/aliquot.dev-slice_1.json", b"")
        files.edits_for(FIRST)
        assert [record.getMessage() for record in caplog.records] == ["driver files found"]
        node.file(SPEC, changed(lambda raw: raw["containerEdits"]["env"].append("NEWER=1")))
        assert "NEWER=1" in files.edits_for(FIRST).env
    assert [getattr(record, "source", "") for record in caplog.records] == [f"NVIDIA CDI spec {SPEC}"] * 2


def test_a_driver_upgrade_is_noticed() -> None:
    """New libraries and the link that leads to them: the next container gets the new driver."""
    node = with_driver()
    files = keeping_up(node)
    assert VERSION in files.source
    lay_libraries(node, folder="/usr/lib/x86_64-linux-gnu", version="580.1.2")
    assert {
        mount.host_path for mount in files.edits_for(FIRST).mounts if mount.container_path.endswith("libcuda.so.1")
    } == {"/usr/lib/x86_64-linux-gnu/libcuda.so.580.1.2"}


def test_a_spec_that_went_bad_is_an_error_until_it_is_mended() -> None:
    """What was read before is not handed out any more."""
    node = node_with_spec()
    files = keeping_up(node)
    good = files.edits_for(FIRST)
    node.file(SPEC, b"garbled: nvidia.com/gpu: [")
    for _ in range(2):
        with pytest.raises(DriverFilesError):
            files.edits_for(FIRST)
    node.file(SPEC, nvidia_yaml())
    assert files.edits_for(FIRST) == good


def test_the_simulated_driver_brings_no_file_of_the_node() -> None:
    """Only a mark that this GPU is not real."""
    gpu = DriverGpu.of(Gpu(uuid=GPUS[1], index=1, model="Simulated", memory=1000))
    edits = SimulatedDriverFiles().edits_for(gpu)
    assert edits == ContainerEdits(env=(f"ALIQUOT_SIMULATED_GPU_1={GPUS[1]}",))
