"""Where accounts lie: told by the kernel's own list of mounts, and never a disk that is filled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot_agent.isolation.accounts_room import FILLING, Filling, Mounted, mounted_at
from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_core.grant import ContainerGrant

FOLDER = Path("/var/lib/aliquot/isolation")
DISK = "22 1 8:1 /var/lib/aliquot/isolation /var/lib/aliquot/isolation rw,relatime - ext4 /dev/sda1 rw"
APART = "23 1 0:50 / /var/lib/aliquot/isolation rw,nosuid shared:7 master:2 - tmpfs aliquot rw,size=65536k"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], None),
        (["21 1 8:1 / / rw - ext4 /dev/sda1 rw"], None),
        ([DISK], Mounted("/var/lib/aliquot/isolation", "ext4")),
        ([APART], Mounted("/", "tmpfs")),
        ([DISK, APART], Mounted("/", "tmpfs")),
        ([APART, DISK], Mounted("/var/lib/aliquot/isolation", "ext4")),
        ([APART.replace("isolation", "isolation/one")], None),
    ],
)
def test_what_lies_at_a_folder_is_what_was_mounted_there_last(lines: list[str], found: Mounted | None) -> None:
    """A part of the node's disk that a container mounts is told from a file system by its root."""
    assert mounted_at(FOLDER, "\n".join(lines)) == found


def test_a_folder_with_a_blank_is_found() -> None:
    """The kernel writes it in octal."""
    assert mounted_at(Path("/a b"), r"23 1 0:50 / /a\040b rw - tmpfs none rw") == Mounted("/", "tmpfs")


def test_a_disk_is_never_filled(tmp_path: Path) -> None:
    """Only a file system of its own is."""
    filling = Filling(tmp_path)
    filling.fill()
    with filling.lent(1 << 20):
        pass
    assert not (tmp_path / FILLING).exists()


@pytest.mark.parametrize(("booted", "in_use"), [(999.0, True), (1001.0, False)])
def test_containers_run_whose_limits_were_written_since_the_node_started(
    tmp_path: Path,
    booted: float,
    in_use: bool,
) -> None:
    """What lay on the disk before a reboot is nobody's."""
    files = SliceFiles(folder=tmp_path, library=tmp_path / "none")
    assert not files.in_use(booted=0)
    owner, nothing = Owner(pod="uid", container="main"), ContainerGrant(slices=())
    own = files.write(token="one", owner=owner, grant=nothing, driver="/driver", contexts={})
    os.utime(own / "limits", (1000, 1000))
    assert files.in_use(booted=booted) is in_use
