"""A container's part of the driver, found by ourselves: libraries, binaries, sockets and device nodes."""

from __future__ import annotations

import pytest

from aliquot_deviceplugin.cdi.discovery import DriverPlace, discover
from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from support.cdi import GPUS
from support.driver_files import FIRST, SECOND, as_text, found, paths
from support.golden import assert_golden
from support.ld_caches import ld_cache
from support.nodes import VERSION, FakeNode, with_driver


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
