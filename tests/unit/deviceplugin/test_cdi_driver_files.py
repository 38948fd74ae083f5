"""Where a container's part of the driver is taken from, and that it is found again when it has changed."""

from __future__ import annotations

import logging

import pytest

from aliquot_core.inventory import Gpu
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, DriverGpu, SimulatedDriverFiles
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.finding import DriverSettings, DriverSource, node_driver_files
from aliquot_deviceplugin.cdi.spec import ContainerEdits
from support.cdi import GPUS
from support.driver_files import FIRST, SPEC, changed, found, node_with_spec, nvidia_yaml
from support.nodes import VERSION, FakeNode, lay_libraries, with_driver


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
