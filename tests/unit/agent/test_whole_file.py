"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot_agent.whole_file import read_file, replace_file


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_by_another(tmp_path: Path, *, durable: bool) -> None:
    """Who has the old one open reads it to its end; nothing else is left in the folder, and nobody else may read it."""
    path = tmp_path / "state"
    replace_file(path, b"old", durable=durable)
    with path.open("rb") as reader:
        replace_file(path, b"new", durable=durable)
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whatever step fails, the former content is whole and no draft stays behind."""
    path = tmp_path / "state"
    replace_file(path, b"old")

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path if call == "replace" else os, call, full)
        with pytest.raises(OSError, match="No space"):
            replace_file(path, b"new", durable=True)

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_durable_files_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content before it takes its place, and then the folder."""
    synced: list[bytes | None] = []
    path = tmp_path / "state"
    monkeypatch.setattr(os, "fsync", lambda _descriptor: synced.append(path.read_bytes() if path.exists() else None))
    replace_file(path, b"cache")
    assert synced == []
    path.unlink()
    replace_file(path, b"kept", durable=True)
    assert synced == [None, b"kept"]


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes to, a device that never ends, a folder: an error at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "endless", "folder"):
        with pytest.raises(OSError, match=r"ordinary file|directory"):
            read_file(tmp_path / name)


def test_a_file_beyond_measure_is_not_read(tmp_path: Path) -> None:
    """It would take the memory of the whole node."""
    path = tmp_path / "state"
    path.write_bytes(b"12345")
    assert read_file(path, most=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(path, most=4)
