"""A container whose grant says `interposer` gets the library, its limits and its account; any other gets neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot_agent.isolation.limits_file import decode_limits
from aliquot_agent.isolation.mps_folder import MpsFolder
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_agent.starting.decision import Spec
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import ObjectMeta, Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_deviceplugin.cdi.driver_files import DriverGpu
from aliquot_deviceplugin.cdi.folder import RealFolder
from aliquot_deviceplugin.cdi.spec import ContainerEdits, Mount, decode_spec
from aliquot_deviceplugin.cdi.store import SpecStore
from aliquot_deviceplugin.slice_specs import SliceSpecs

UUID = "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a001"
# What a CUDA context takes of it, in MiB.
CONTEXT = 450
CUDA, NVML = "/usr/lib/libcuda.so.580.65.06", "/usr/lib/libnvidia-ml.so.580.65.06"
POD = Pod(metadata=ObjectMeta(name="train", namespace="lab", uid="uid-1"))


class OneLibrary:
    """A driver that is one file, or a few."""

    source = "a test"

    def __init__(self, *more: str) -> None:
        self._files = CUDA, *more

    def edits_for(self, gpu: DriverGpu) -> ContainerEdits:
        """The same for each GPU."""
        mounts = tuple(Mount(host_path=path, container_path=path) for path in self._files)
        return ContainerEdits(mounts=mounts, env=(f"SEEN={gpu.uuid}",))


def with_mps(tmp_path: Path, *, compute: int, limit: int) -> ContainerEdits:
    """What one container's spec adds on a node of MPS."""
    names = Names()
    (tmp_path / "cdi").mkdir()
    specs = SliceSpecs(
        names=names,
        store=SpecStore(names=names, folder=RealFolder(tmp_path / "cdi")),
        driver_files=OneLibrary(),
        mps=MpsFolder(tmp_path / "mps"),
    )
    part = Slice(gpu=UUID, compute=Percent(compute), limit=Percent(limit), memory=MiB(1000))
    grant = ContainerGrant(slices=(part,), isolation="mps")
    gpu = Gpu(uuid=UUID, index=0, model="NVIDIA A100", memory=40_000, minor=0)
    specs.write(
        pod=POD,
        spec=Spec(cdi_name=f"{names.cdi_kind}=token-1", container="main", grant=grant),
        claims={},
        inventory=Inventory(gpus=(gpu,)),
    )
    (file,) = (tmp_path / "cdi").iterdir()
    (device,) = decode_spec(file.read_bytes(), where=file.name).devices
    return device.container_edits


def written(tmp_path: Path, *, isolation: str, more: tuple[str, ...] = ()) -> tuple[SliceSpecs, dict[str, str]]:
    """The places in the container, with where they come from, after one container's start."""
    names = Names()
    (tmp_path / "cdi").mkdir()
    (tmp_path / "library").write_bytes(b"interposer")
    files = SliceFiles(folder=tmp_path / "isolation", library=tmp_path / "library")
    files.prepare()
    store = SpecStore(names=names, folder=RealFolder(tmp_path / "cdi"))
    specs = SliceSpecs(names=names, store=store, driver_files=OneLibrary(*more), isolation=files)
    part = Slice(gpu=UUID, compute=Percent(30), limit=Percent(30), memory=MiB(1000))
    spec = Spec(
        cdi_name=f"{names.cdi_kind}=token-1",
        container="main",
        grant=ContainerGrant(slices=(part,), isolation=isolation),
    )
    gpu = Gpu(uuid=UUID, index=0, model="NVIDIA A100", memory=40_000, minor=0, context=CONTEXT)
    specs.write(pod=POD, spec=spec, claims={}, inventory=Inventory(gpus=(gpu,)))
    (file,) = (tmp_path / "cdi").iterdir()
    (device,) = decode_spec(file.read_bytes(), where=file.name).devices
    return specs, {mount.container_path: mount.host_path for mount in device.container_edits.mounts}


@pytest.mark.parametrize(
    ("compute", "limit", "percent"), [(30, 30, 30), (30, 60, 60), (0, 100, 100)], ids=["fixed", "bursts", "best effort"]
)
def test_a_container_of_mps_speaks_to_its_gpus_daemon(tmp_path: Path, compute: int, limit: int, percent: int) -> None:
    """It has that GPU's pipe and its own limits, the driver as it is, and its own /dev/shm."""
    device = with_mps(tmp_path, compute=compute, limit=limit)
    assert {mount.container_path: mount.host_path for mount in device.mounts} == {
        CUDA: CUDA,
        "/run/aliquot/mps": str(tmp_path / "mps" / UUID / "pipe"),
    }
    assert {
        "CUDA_MPS_PIPE_DIRECTORY=/run/aliquot/mps",
        f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1000M",
    } <= set(device.env)


def test_who_has_the_gpu_whole_needs_no_daemon(tmp_path: Path) -> None:
    """On a GPU of MPS too: nothing stands between it and the driver."""
    device = with_mps(tmp_path, compute=100, limit=100)
    assert [mount.container_path for mount in device.mounts] == [CUDA]
    assert not any("MPS" in entry for entry in device.env)


def test_an_interposed_container_has_the_library_in_the_drivers_place(tmp_path: Path) -> None:
    """Its spec mounts ours over the driver's, the driver's beside, and the two files of this container."""
    _, mounts = written(tmp_path, isolation="interposer")
    folder = tmp_path / "isolation"
    assert mounts == {
        CUDA: str(folder / "libcuda.so.1"),
        "/run/aliquot/isolation/driver/libcuda.so": CUDA,
        "/run/aliquot/isolation/limits": str(folder / "token-1" / "limits"),
        "/run/aliquot/isolation/account": str(folder / "token-1" / "account"),
    }
    (limits,) = decode_limits((folder / "token-1" / "limits").read_bytes())
    assert (limits.memory, limits.context) == (1000 << 20, CONTEXT << 20)


def test_its_tools_see_the_slice_where_the_driver_has_nvml(tmp_path: Path) -> None:
    """Ours lies over each name of the driver's, which is beside; where we have none, or only watch, theirs stays."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"front")
    _, mounts = written(tmp_path, isolation="interposer", more=(NVML,))
    ours = tmp_path / "isolation" / "libnvidia-ml.so.1"
    assert ours.read_bytes() == b"front"
    assert {inside: host for inside, host in mounts.items() if "nvidia-ml" in inside} == {
        NVML: str(ours),
        "/run/aliquot/isolation/driver/libnvidia-ml.so": NVML,
    }
    for mode, front in (("observe", True), ("interposer", False)):
        other = tmp_path / mode
        other.mkdir()
        if front:
            (other / "libnvidia-ml.so.1").write_bytes(b"front")
        _, mounts = written(other, isolation=mode, more=(NVML,))
        assert {inside: host for inside, host in mounts.items() if "nvidia-ml" in inside} == {NVML: NVML}


@pytest.mark.parametrize("isolation", ["observe", "mig", ""])
def test_any_other_container_has_the_drivers_own(tmp_path: Path, isolation: str) -> None:
    """Nothing is put in the driver's place, and no files are made."""
    _, mounts = written(tmp_path, isolation=isolation)
    assert mounts == {CUDA: CUDA}
    assert not (tmp_path / "isolation" / "token-1").exists()


def test_a_pod_that_is_gone_leaves_no_files(tmp_path: Path) -> None:
    """With its spec go its limits and its account; those of a living pod stay."""
    specs, _ = written(tmp_path, isolation="interposer")
    specs.collect(living_pods={"uid-1"})
    assert (tmp_path / "isolation" / "token-1").exists()
    specs.collect(living_pods=set())
    assert not (tmp_path / "isolation" / "token-1").exists()
