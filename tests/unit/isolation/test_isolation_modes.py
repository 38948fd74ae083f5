"""Modes of isolation: what each makes of a class, and what an interposed container is given."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.limits_file import (
    ACCOUNT_BYTES,
    WHOLE,
    GpuLimits,
    decode_account,
    decode_limits,
    encode_limits,
)
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_core.errors import DefectError
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.isolation import Keeping, keeping
from aliquot_core.modes import MODES
from aliquot_core.quantities import MiB, Percent
from aliquot_core.request import Quality
from aliquot_deviceplugin.cdi.errors import SliceSpecError
from aliquot_deviceplugin.cdi.interposing import interposer_edits
from aliquot_deviceplugin.cdi.merging import merge_edits
from aliquot_deviceplugin.cdi.spec import ContainerEdits, Mount

OWNER = Owner(pod="uid-1", container="main")
UUID = "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a001"


def test_every_mode_says_what_it_makes_of_every_class() -> None:
    """The interposer holds all, MIG holds what is guaranteed and refuses what bursts, others try."""
    table = {mode: [keeping(mode, quality) for quality in Quality] for mode in MODES}
    held, tried, refused = Keeping.HELD, Keeping.TRIED, Keeping.REFUSED
    assert table == {
        "observe": [tried, tried, tried],
        "interposer": [held, held, held],
        "mps": [tried, tried, tried],
        "mig": [held, refused, refused],
    }
    assert keeping("of-tomorrow", Quality.GUARANTEED) is tried


def test_the_page_shows_the_table_of_the_code() -> None:
    """docs/isolation.md has each mode's row as the function answers it."""
    page = (Path(__file__).parents[3] / "docs" / "isolation.md").read_text()
    for mode in MODES:
        row = " | ".join(keeping(mode, quality) for quality in Quality)
        assert f"| `{mode}` | {row} |" in page


def grant(*, compute: int = 30, limit: int = 60, memory: int = 5000) -> ContainerGrant:
    """A slice of one GPU."""
    part = Slice(gpu=UUID, compute=Percent(compute), limit=Percent(limit), memory=MiB(memory))
    return ContainerGrant(slices=(part,), isolation="interposer")


def files(tmp_path: Path) -> SliceFiles:
    """A node's folder, with an interposer to put there."""
    library = tmp_path / "image" / "libcuda.so.1"
    library.parent.mkdir(exist_ok=True)
    library.write_bytes(b"interposer")
    return SliceFiles(folder=tmp_path / "isolation", library=library)


def test_limits_are_the_grants(tmp_path: Path) -> None:
    """A container's limits say what its grant does, and its account is empty and everybody's to write."""
    node = files(tmp_path)
    assert node.prepare() == ""
    own = node.write(token="one", owner=OWNER, grant=grant(), driver="/driver", contexts={UUID: 300})
    (told,) = decode_limits((own / "limits").read_bytes())
    assert (told.uuid, told.memory, told.context) == (UUID, 5000 << 20, 300 << 20)
    assert (told.guarantee, told.rate, told.limit) == (300_000, 300_000, 600_000)
    assert (own / "account").read_bytes() == bytes(ACCOUNT_BYTES)
    assert [(own / name).stat().st_mode & 0o777 for name in ("limits", "account")] == [0o644, 0o666]
    assert node.library.read_bytes() == b"interposer"


def test_a_container_that_starts_again_has_a_fresh_account(tmp_path: Path) -> None:
    """What a former life of the container wrote is another file, which nobody mounts any more."""
    node = files(tmp_path)
    own = node.write(token="one", owner=OWNER, grant=grant(), driver="/driver", contexts={UUID: 300})
    with (own / "account").open("r+b") as former:
        former.write(b"spent")
        node.write(token="one", owner=OWNER, grant=grant(), driver="/driver", contexts={UUID: 300})
        assert (own / "account").read_bytes() == bytes(ACCOUNT_BYTES)


def test_files_of_containers_that_are_gone_are_collected(tmp_path: Path) -> None:
    """Only what belongs to a container that is still there stays, and the library."""
    node = files(tmp_path)
    node.prepare()
    for token in ("one", "two"):
        node.write(token=token, owner=OWNER, grant=grant(), driver="/driver", contexts={UUID: 300})
    node.collect(tokens={"two"})
    assert [own.name for own in node.containers()] == ["two"]
    assert node.library.exists()


def test_an_interposer_that_is_not_there_is_said(tmp_path: Path) -> None:
    """A node whose image lacks the library says so instead of promising to hold."""
    node = SliceFiles(folder=tmp_path, library=tmp_path / "nothing")
    assert "can't be mounted" in node.prepare()


def test_the_interposer_takes_the_place_of_the_drivers_library() -> None:
    """All places of libcuda are ours, the driver's own lies where only the interposer looks, nothing else moves."""
    mounts = [
        Mount(host_path=f"/usr/lib64/{name}", container_path=f"/usr/lib/{name}", options=("ro", "bind"))
        for name in ("libcuda.so.580.65.06", "libcudadebugger.so.580.65.06", "libnvidia-ml.so.580.65.06")
    ]
    driver = ContainerEdits(mounts=tuple(mounts))
    ours = interposer_edits([driver], library="/node/libcuda.so.1", limits="/node/limits", account="/node/account")
    merged = {mount.container_path: mount for mount in merge_edits([driver, ours]).mounts}
    assert merged["/usr/lib/libcuda.so.580.65.06"].host_path == "/node/libcuda.so.1"
    assert merged["/usr/lib/libcudadebugger.so.580.65.06"].host_path == "/usr/lib64/libcudadebugger.so.580.65.06"
    assert merged["/run/aliquot/isolation/driver/libcuda.so"].host_path == "/usr/lib64/libcuda.so.580.65.06"
    assert "ro" in merged["/run/aliquot/isolation/limits"].options
    assert "rw" in merged["/run/aliquot/isolation/account"].options


def test_a_driver_without_its_library_is_not_interposed() -> None:
    """Where libcuda is not mounted there is nothing to stand in front of, and the slice is refused."""
    with pytest.raises(SliceSpecError, match="libcuda"):
        interposer_edits([ContainerEdits()], library="/l", limits="/m", account="/a")


def test_places_in_containers_are_the_same_in_both_languages() -> None:
    """Where the agent mounts the two files is where the library looks for them."""
    places = (Path(__file__).parents[3] / "isolation" / "places.c").read_text()
    assert '"/run/aliquot/isolation/limits"' in places
    assert '"/run/aliquot/isolation/account"' in places


def test_limits_are_read_as_they_were_written() -> None:
    """Two GPUs there and back; what is no limits file holds none."""
    gpus = [
        GpuLimits(
            uuid=f"{UUID[:-1]}{index}",
            memory=index + 1,
            context=2,
            guarantee=3,
            rate=4,
            limit=5,
            weight=6,
            unaccounted=7,
            beat=8,
        )
        for index in range(2)
    ]
    assert decode_limits(encode_limits(gpus, driver="/driver")) == tuple(gpus)
    assert decode_limits(b"?" * 2304) == ()
    assert WHOLE == 1_000_000


@pytest.mark.parametrize("uuid", ["GPU-none", ""])
def test_a_gpu_without_a_uuid_is_a_defect(uuid: str) -> None:
    """Nothing is written that the library would take for another GPU."""
    with pytest.raises(DefectError):
        encode_limits([GpuLimits(uuid=uuid, memory=1, context=1, guarantee=1, rate=1)], driver="/driver")


@pytest.mark.parametrize(("count", "driver"), [(17, "/driver"), (1, "/" + 239 * "d")])
def test_what_the_file_can_not_hold_is_a_defect(count: int, driver: str) -> None:
    """More GPUs or a longer path than there is room for would be cut off without a word."""
    gpus = [GpuLimits(uuid=UUID, memory=1, context=1, guarantee=1, rate=1)] * count
    with pytest.raises(DefectError):
        encode_limits(gpus, driver=driver)


def test_an_account_is_read_as_far_as_it_can_be_one() -> None:
    """Counts that a tenant made up, and slots that nobody owns, hold nothing."""
    data = bytearray(ACCOUNT_BYTES)
    assert decode_account(bytes(data), gpus=1) is None
    data[:8] = b"ALIQACC1"
    struct.pack_into("<I", data, 12, 2**32 - 1)
    struct.pack_into("<Q", data, 204_800, 2**64 - 1)
    struct.pack_into("<QII2Q", data, 8192, 1, 7, 0, 10, 20)
    struct.pack_into("<QII2Q", data, 8192 + 192, 0, 8, 0, 30, 40)
    found = decode_account(bytes(data), gpus=2)
    assert found is not None
    assert found.processes == {7: (10, 20)}
    assert decode_account(bytes(data[:-1]), gpus=2) is None
