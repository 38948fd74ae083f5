"""The spec of a slice: what a container with a grant finds inside."""

from __future__ import annotations

import json

import msgspec
import pytest

from aliquot_core.grant import ContainerGrant
from aliquot_core.names import Names
from aliquot_core.quantities import Percent
from aliquot_deviceplugin.cdi.driver_files import DriverGpu, SimulatedDriverFiles, edits_of_grant
from aliquot_deviceplugin.cdi.errors import DriverFilesError, SliceSpecError, SpecError
from aliquot_deviceplugin.cdi.slice_spec import LARGEST_SPEC, owner_of, slice_spec
from aliquot_deviceplugin.cdi.spec import ContainerEdits, DeviceNode, Mount, Spec, decode_spec, encode_spec
from support.cdi import GPUS, NAMES, OWNER, granted, simulated_spec
from support.golden import assert_golden

DRIVER = {
    gpu: ContainerEdits(
        env=("NVIDIA_VISIBLE_DEVICES=all",),
        device_nodes=(DeviceNode(path="/dev/nvidiactl"), DeviceNode(path=f"/dev/nvidia{index}")),
        mounts=(Mount(host_path="/lib/libcuda.so.1", container_path="/lib/libcuda.so.1", options=("ro",)),),
    )
    for index, gpu in enumerate(GPUS)
}


def composed(grant: ContainerGrant, *isolation: ContainerEdits, named: str = "t0") -> Spec:
    """The spec of that grant with the driver's files above."""
    return slice_spec(
        names=NAMES, token=named, owner=OWNER, grant=grant, driver_edits=DRIVER, isolation_edits=isolation
    )


def environment(spec: Spec) -> dict[str, str]:
    """The container's variables."""
    return dict(entry.split("=", 1) for entry in spec.devices[0].container_edits.env)


def test_a_simulated_slice_is_written_as_the_golden_file_says() -> None:
    """The whole file of a pod with slices of two GPUs, one of them whole."""
    spec = simulated_spec(token="t0", grant=granted(100, 50))
    assert_golden("slice-simulated.json", json.dumps(json.loads(encode_spec(spec)), indent=2) + "\n")


def test_the_environment_tells_the_container_what_it_holds() -> None:
    """Totals, each GPU's part, the order of the grant, and nothing for NVIDIA's own runtime to add."""
    grant = granted(100, 50, memory=2000)
    bursting = msgspec.structs.replace(grant.slices[1], limit=Percent(80))
    told = environment(composed(msgspec.structs.replace(grant, slices=(grant.slices[0], bursting))))
    assert told == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(GPUS),
        "ALIQUOT_GPUS": ",".join(GPUS),
        "ALIQUOT_COMPUTE": "150",
        "ALIQUOT_COMPUTE_LIMIT": "180",
        "ALIQUOT_MEMORY": "4000",
        "ALIQUOT_SLICES": f"{GPUS[0]}:100:2000,{GPUS[1]}:50:2000",
        "ALIQUOT_ISOLATION": "observe",
    }


def test_files_common_to_several_gpus_stand_once() -> None:
    """Two GPUs bring their own device nodes and share everything else."""
    edits = composed(granted(50, 50)).devices[0].container_edits
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]
    assert len(edits.mounts) == 1


def test_only_granted_gpus_are_in_the_spec() -> None:
    """A GPU of the node that the grant does not name leaves no trace."""
    spec = composed(granted(50))
    assert GPUS[1].encode() not in encode_spec(spec)
    assert b"nvidia1" not in encode_spec(spec)


def test_isolation_may_take_the_place_of_a_driver_library() -> None:
    """An interposer that is mounted over libcuda.so.1 wins, and so does its variable."""
    interposer = ContainerEdits(
        env=("CUDA_DEVICE_ORDER=FASTEST_FIRST",),
        mounts=(Mount(host_path="/opt/aliquot/interposer.so", container_path="/lib/libcuda.so.1"),),
    )
    spec = composed(granted(50), interposer)
    assert [mount.host_path for mount in spec.devices[0].container_edits.mounts] == ["/opt/aliquot/interposer.so"]
    assert environment(spec)["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_the_owner_can_be_read_back() -> None:
    """Garbage collection and operators learn from the file whose it is."""
    spec = decode_spec(encode_spec(composed(granted(50))), where="test")
    assert owner_of(spec, names=NAMES) == OWNER


def test_another_installation_does_not_take_it_for_its_own() -> None:
    """Owner and kind are under the domain of the installation."""
    assert owner_of(composed(granted(50)), names=Names(domain="gpu.example.com")) is None


def test_the_version_rises_only_with_what_the_driver_brings() -> None:
    """0.6.0 for our annotations, 0.7.0 where the driver's edits add groups."""
    grouped = {GPUS[0]: ContainerEdits(additional_gids=(44,))}
    spec = slice_spec(names=NAMES, token="t0", owner=OWNER, grant=granted(50), driver_edits=grouped)
    assert (composed(granted(50)).cdi_version, spec.cdi_version) == ("0.6.0", "0.7.0")


@pytest.mark.parametrize("token", ["", "-a", "a/b", "a b", "a=b", "ü", "a" * 64])
def test_a_token_that_is_no_device_name_is_a_defect(token: str) -> None:
    """Such a name would make the runtime refuse the whole file."""
    with pytest.raises(SliceSpecError, match="no CDI device name"):
        composed(granted(50), named=token)


def test_a_gpu_without_driver_edits_is_a_defect() -> None:
    """A container is never started with less than its grant."""
    with pytest.raises(SliceSpecError, match="nothing is known of GPU"):
        slice_spec(names=NAMES, token="t0", owner=OWNER, grant=granted(50), driver_edits={})


def test_a_spec_beyond_all_measure_is_refused() -> None:
    """Every write makes the runtime parse it again, so it must stay small."""
    swollen = ContainerEdits(mounts=tuple(Mount(host_path="/x" * 50, container_path=f"/{n}") for n in range(3000)))
    with pytest.raises(SpecError, match=f"more than {LARGEST_SPEC}"):
        composed(granted(50), swollen)


def test_a_granted_gpu_that_the_driver_lost_is_named() -> None:
    """The error says which GPU, so that an operator finds it."""
    with pytest.raises(DriverFilesError, match=GPUS[1]):
        edits_of_grant(
            granted(50, 50),
            gpus={GPUS[0]: DriverGpu(uuid=GPUS[0], index=0)},
            driver_files=SimulatedDriverFiles(),
        )
