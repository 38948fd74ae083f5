"""What the driver sees of a container beyond its account: late in coming, quick to go, never guessed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.beyond import GRANULE, LOOKS, Owner, accounted, since_restart
from aliquot_agent.isolation.limits_file import ACCOUNT_BYTES, ACCOUNT_MAGIC, decode_account, decode_limits
from aliquot_agent.isolation.pacemaker import BEAT_S, Pacemaker
from aliquot_agent.isolation.slice_files import SliceFiles, owner_of
from aliquot_agent.web.accounts import SliceUse
from aliquot_cli.node_isolation import tell_memory
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.quantities import MiB, Percent
from support.clocks import VirtualClock

MIB = 1024 * 1024
UUIDS = [f"GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a00{index}" for index in range(2)]

looks = st.lists(st.tuples(st.none() | st.integers(0, 100), st.integers(0, 100)), max_size=12)


@given(looks, st.integers(0, 100))
def test_an_excess_counts_when_three_samples_in_a_row_had_it(seen: list[tuple[int | None, int]], before: int) -> None:
    """It is what all of the last three had; what is not known wipes out what was; what stood before counts as seen."""
    excess, told = since_restart(before), [before] * (LOOKS - 1)
    for driver, account in seen:
        excess = excess.then(driver=driver, account=account)
        told = [0] * (LOOKS - 1) if driver is None else [*told, max(0, driver - account)]
        assert excess.lasting == min(told[-LOOKS:]) >= 0


def account(*used: int, gpus: int = 1, borrowed: tuple[tuple[int, int], ...] = ()) -> bytes:
    """An account whose processes hold so many bytes of the first GPU, and borrowed (bytes, gpu) of each other."""
    data = bytearray(ACCOUNT_BYTES)
    data[:8] = ACCOUNT_MAGIC
    struct.pack_into("<I", data, 12, len(used))
    for index, size in enumerate(used):
        struct.pack_into(f"<QII{gpus}Q", data, 8192 + 192 * index, 1, 100 + index, 7, *[size] * gpus)
    struct.pack_into("<Q", data, 204_800, len(borrowed))
    for index, (size, gpu) in enumerate(borrowed):
        struct.pack_into("<3Q4I", data, 215_048 + 40 * index, size, 0, 0, 0, 0, gpu, 0)
    return bytes(data)


def test_what_is_lent_counts_for_both() -> None:
    """Nobody knows whom the driver says it of; and a granule of each process is let pass."""
    told = decode_account(account(10 * MIB, 20 * MIB, gpus=2, borrowed=((5 * MIB, 1), (7 * MIB, 1), (1, 9))), gpus=2)
    assert told is not None
    assert told.borrowed == (0, 12 * MIB)
    assert [accounted(told, gpu=gpu) for gpu in range(2)] == [30 * MIB + 2 * GRANULE, 42 * MIB + 2 * GRANULE]


class Node:
    """A node with a pacemaker and some containers."""

    def __init__(self, folder: Path) -> None:
        self.files = SliceFiles(folder=folder, library=folder / "libcuda")
        self.clock = VirtualClock()
        self.pacemaker = Pacemaker(files=self.files, clock=self.clock)

    def start(self, pod: str, *used: int, gpus: int = 1) -> Path:
        """A container whose account says so."""
        slices = tuple(
            Slice(gpu=uuid, compute=Percent(10), limit=Percent(10), memory=MiB(1000)) for uuid in UUIDS[:gpus]
        )
        own = self.files.write(
            token=pod,
            owner=Owner(pod=pod, container="main"),
            grant=ContainerGrant(slices=slices, isolation="interposer"),
            driver="/driver",
            contexts={part.gpu: 0 for part in slices},
        )
        (own / "account").write_bytes(account(*used, gpus=gpus))
        return own

    def sample(self, pod: str, *mib: int | None) -> None:
        """A beat, what the driver says of the pod then, and a beat."""
        self.pacemaker.beat()
        slices = [
            SliceUse(
                namespace="team",
                pod=pod,
                uid=pod,
                container="main",
                gpu=uuid,
                compute=1,
                limit=1,
                memory_mib=1,
                used_mib=held,
            )
            for uuid, held in zip(UUIDS, mib, strict=False)
        ]
        tell_memory(self.pacemaker, slices)
        self.pacemaker.beat()


def beyond(own: Path) -> list[int]:
    """What the container is told, in MiB by GPU."""
    return [limits.unaccounted // MIB for limits in decode_limits((own / "limits").read_bytes())]


def test_what_goes_round_the_account_is_written_into_the_limits(tmp_path: Path) -> None:
    """With the third sample, for the GPU on which it is; nothing else of the limits changes; it goes with the first."""
    node = Node(tmp_path)
    own = node.start("u1", 98 * MIB, gpus=2)
    (own / "account").write_bytes(account(98 * MIB, gpus=2, borrowed=((50 * MIB, 1),)))
    before = decode_limits((own / "limits").read_bytes())
    for expected in ([0, 0], [0, 0], [300, 0], [300, 0]):
        node.sample("u1", 400, 150)
        assert beyond(own) == expected
    after = decode_limits((own / "limits").read_bytes())
    assert [(one.memory, one.guarantee, one.limit, one.context) for one in after] == [
        (one.memory, one.guarantee, one.limit, one.context) for one in before
    ]
    node.sample("u1", 100, 100)
    assert beyond(own) == [0, 0]


def test_what_was_freed_since_the_sample_is_no_excess(tmp_path: Path) -> None:
    """The driver is asked, then the account is read: what it said a moment before counts."""
    node = Node(tmp_path)
    own = node.start("u1", 398 * MIB)
    for _ in range(4):
        (own / "account").write_bytes(account(398 * MIB))
        node.pacemaker.beat()
        (own / "account").write_bytes(account(0))
        node.sample("u1", 400)
        assert beyond(own) == [0]


def test_what_was_held_long_ago_hides_nothing(tmp_path: Path) -> None:
    """Only the account around the sample counts, and not what it said seconds before."""
    node = Node(tmp_path)
    own = node.start("u1", 998 * MIB)
    node.pacemaker.beat()
    (own / "account").write_bytes(account(98 * MIB))
    for _ in range(round(5 / BEAT_S)):
        node.pacemaker.beat()
    for _ in range(LOOKS):
        node.sample("u1", 400)
    assert beyond(own) == [300]


@pytest.mark.parametrize("unknown", ["hidden", "unnamed"])
def test_what_is_not_known_is_not_guessed(tmp_path: Path, unknown: str) -> None:
    """A driver that hides a process's memory, or a container of which the sample says nothing, takes nothing away."""
    node = Node(tmp_path)
    own = node.start("u1", 98 * MIB)
    for _ in range(LOOKS):
        node.sample("u1", 400)
    assert beyond(own) == [300]
    node.sample("u1" if unknown == "hidden" else "u2", None)
    assert beyond(own) == [0]


def test_pods_are_told_apart(tmp_path: Path) -> None:
    """What one went round is never another's."""
    node = Node(tmp_path)
    guilty, other = node.start("u1", 0), node.start("u2", 98 * MIB)
    for _ in range(LOOKS):
        node.pacemaker.beat()
        node.pacemaker.measured({("u1", "main", UUIDS[0]): 500 * MIB, ("u2", "main", UUIDS[0]): 100 * MIB})
    node.pacemaker.beat()
    assert [beyond(guilty), beyond(other)] == [[498], [0]]


def test_the_next_agent_goes_on_from_what_stands_there(tmp_path: Path) -> None:
    """A restart frees nothing that was found, and the first sample that has less does."""
    first = Node(tmp_path)
    own = first.start("u1", 98 * MIB)
    for _ in range(LOOKS):
        first.sample("u1", 400)
    second = Node(tmp_path)
    second.pacemaker.beat()
    assert beyond(own) == [300]
    second.sample("u1", 380)
    assert beyond(own) == [280]


def test_a_container_that_starts_again_begins_with_nothing_against_it(tmp_path: Path) -> None:
    """What its former life held beyond the account went with its processes."""
    node = Node(tmp_path)
    node.start("u1", 98 * MIB)
    for _ in range(LOOKS):
        node.sample("u1", 400)
    own = node.start("u1", 0)
    node.pacemaker.beat()
    assert beyond(own) == [0]


def test_a_folder_without_an_owner_stops_nobody(tmp_path: Path) -> None:
    """One that is being removed, or that an agent of another version wrote, is left alone."""
    node = Node(tmp_path)
    own, bare = node.start("u1", 0), node.start("u2", 0)
    (bare / "owner").write_bytes(b"?")
    assert owner_of(bare) is None
    for _ in range(LOOKS):
        node.sample("u1", 500)
    assert [beyond(own), beyond(bare)] == [[498], [0]]
