"""The node's files: links mean the node's own paths, wherever its root is mounted."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_deviceplugin.cdi.ld_cache import folders_of
from aliquot_deviceplugin.cdi.node_files import (
    FileKind,
    RememberedFiles,
    RootedFiles,
    SubtreeFiles,
    missing,
    resolve,
)
from support.ld_caches import ld_cache
from support.nodes import FakeNode


def test_links_are_followed_inside_the_tree(tmp_path: Path) -> None:
    """An absolute link of a mounted node leads to the node's file, not to this machine's."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "real").write_text("node")
    (tmp_path / "link").symlink_to("/etc/real")
    (tmp_path / "folder").symlink_to("/etc")
    (tmp_path / "up").symlink_to("folder/../../../etc/./real")
    files = RootedFiles(tmp_path)
    assert {path: resolve(files, path) for path in ("/link", "/folder/real", "/up", "//etc/real")} == dict.fromkeys(
        ("/link", "/folder/real", "/up", "//etc/real"), "/etc/real"
    )


def test_what_leads_nowhere_is_missing(tmp_path: Path) -> None:
    """Broken links, links in a circle, and what never was; each is named once."""
    (tmp_path / "broken").symlink_to("gone")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "there").touch()
    paths = ["/broken", "/circle", "/there", "/never", "/never", "/"]
    assert missing(RootedFiles(tmp_path), paths) == ["/broken", "/circle", "/never"]


def test_real_files_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, folder, link, socket, device and the rest."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder").mkdir()
    Path("link").symlink_to("file")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        looks = {name: RootedFiles(tmp_path).look(f"/{name}") for name in ("file", "folder", "link", "pipe", "socket")}
    kinds = {name: look.kind for name, look in looks.items() if look}
    assert kinds == {name: FileKind.OTHER if name == "pipe" else FileKind(name) for name in looks}
    null = RootedFiles().look("/dev/null")
    assert null is not None
    assert null.kind is FileKind.DEVICE


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    """However large a file is, no more of it is taken into memory."""
    (tmp_path / "large").write_bytes(b"x" * 100)
    assert RootedFiles(tmp_path).read("/large", limit=7) == b"x" * 7


def test_what_the_kernel_tells_of_drivers_is_read_where_we_are(tmp_path: Path) -> None:
    """A node's /proc is mounted nowhere in the agent's container, and need not be."""
    (tmp_path / "proc" / "driver").mkdir(parents=True)
    (tmp_path / "proc" / "driver" / "rtc").write_text("the node's, which nobody mounts")
    (tmp_path / "proc" / "other").write_text("below the root")
    files = RootedFiles(tmp_path)
    assert files.read("/proc/other", limit=99) == b"below the root"
    assert files.look("/proc/driver/rtc") == RootedFiles().look("/proc/driver/rtc")
    assert files.names("/proc/driver") == RootedFiles().names("/proc/driver")


def test_a_folder_that_is_none_holds_nothing(tmp_path: Path) -> None:
    """Missing, or a file."""
    (tmp_path / "b").touch()
    (tmp_path / "a").touch()
    assert [RootedFiles(tmp_path).names(folder) for folder in ("/", "/missing", "/a")] == [["a", "b"], [], []]


def test_a_change_shows_in_the_stamp(tmp_path: Path) -> None:
    """A file that is replaced by another of the same size still differs."""
    files = RootedFiles(tmp_path)
    (tmp_path / "file").write_text("a")
    before = files.look("/file")
    (tmp_path / "other").write_text("b")
    (tmp_path / "other").replace(tmp_path / "file")
    assert files.look("/file") != before


def test_a_subtree_is_a_tree_of_its_own() -> None:
    """Absolute links below a driver's root stay below it."""
    node = FakeNode()
    node.file("/driver/usr/lib/x", b"content")
    node.link("/driver/lib", "/usr/lib")
    below = SubtreeFiles(node, root="/driver/")
    assert resolve(below, "/lib/x") == "/usr/lib/x"
    assert below.read("/usr/lib/x", limit=9) == b"content"
    assert below.names("/usr/lib") == ["x"]


def test_common_parents_are_looked_at_once() -> None:
    """Checking a hundred libraries of one folder costs a hundred looks, not four hundred."""
    node = FakeNode()
    paths = [f"/usr/lib/x/{number}" for number in range(100)]
    for path in paths:
        node.file(path)
    node.looked_at = 0
    assert missing(node, paths) == []
    assert node.looked_at == 103
    assert RememberedFiles(node).names("/usr/lib/x") == node.names("/usr/lib/x")


def test_the_loader_cache_tells_the_folders_of_one_processor() -> None:
    """Other libraries and other processors' are left out; each folder is named once."""
    cache = ld_cache(
        ("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1", 0x0003),
        ("libcuda.so.1", "/opt/nvidia/lib/libcuda.so.1", 0x0303),
        ("libcuda.so.1", "/opt/nvidia/lib/libcuda.so.1", 0x0303),
        ("libcuda.so.1", "/usr/lib64/libcuda.so.1", 0x0303),
        ("libm.so.6", "/usr/lib/libm.so.6", 0x0303),
        ("libcuda.so.1", "/usr/lib/arm/libcuda.so.1", 0x0A03),
    )
    assert folders_of("libcuda.so.1", cache=cache, machine="x86_64") == ["/opt/nvidia/lib", "/usr/lib64"]
    assert folders_of("libcuda.so.1", cache=cache, machine="aarch64") == ["/usr/lib/arm"]
    assert folders_of("libcuda.so.1", cache=cache, machine="riscv64") == []


def test_the_older_format_before_the_newer_one_is_skipped() -> None:
    """Older glibc writes both into one file; offsets count from the newer header."""
    cache = b"ld.so-1.7.0\x00padding!" + ld_cache(("libcuda.so.1", "/usr/lib64/libcuda.so.1", 0x0303))
    assert folders_of("libcuda.so.1", cache=cache, machine="x86_64") == ["/usr/lib64"]


whole_cache = ld_cache(*(("libcuda.so.1", f"/folder{number}/libcuda.so.1", 0x0303) for number in range(4)))


@given(
    st.binary(max_size=300)
    | st.integers(0, len(whole_cache)).map(lambda cut: whole_cache[:cut])
    | st.tuples(st.integers(20, len(whole_cache) - 1), st.integers(0, 255)).map(
        lambda change: whole_cache[: change[0]] + bytes([change[1]]) + whole_cache[change[0] + 1 :]
    )
)
def test_a_garbled_loader_cache_gives_absolute_folders_or_none(cache: bytes) -> None:
    """Cut off or damaged anywhere, it never raises."""
    assert all(
        folder == "" or folder.startswith("/") for folder in folders_of("libcuda.so.1", cache=cache, machine="x86_64")
    )
