"""Spec files: whole or absent, never others', and honest when the folder fails."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.names import Names
from aliquot_deviceplugin.cdi.errors import SpecFolderError
from aliquot_deviceplugin.cdi.folder import Folder, RealFolder
from aliquot_deviceplugin.cdi.spec import decode_spec, encode_spec
from aliquot_deviceplugin.cdi.store import SpecStore
from support.cdi import FULL, NAMES, OWNER, READ_ONLY, FailingFolder, granted, simulated_spec


def store_in(folder: Folder) -> SpecStore:
    """A store of the usual installation."""
    return SpecStore(names=NAMES, folder=folder)


def test_a_written_spec_is_read_back_with_its_owner(tmp_path: Path) -> None:
    """The folder is made when it is missing, and holds exactly one file afterwards."""
    store = store_in(RealFolder(tmp_path / "run" / "cdi"))
    assert store.write(simulated_spec(token="t0"))
    (stored,) = store.listed()
    assert (stored.token, stored.owner, stored.problem) == ("t0", OWNER, "")
    assert [path.name for path in (tmp_path / "run" / "cdi").iterdir()] == [store.file_of("t0")]


def test_only_root_learns_a_token(tmp_path: Path) -> None:
    """The file is unreadable to others and its name does not tell the token, for the folder can be listed."""
    store = store_in(RealFolder(tmp_path))
    store.write(simulated_spec(token="0123456789abcdef"))
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "0123456789abcdef" not in path.name


def test_the_same_content_is_not_written_again() -> None:
    """A write makes the runtime read all specs anew."""
    folder = FailingFolder()
    store = store_in(folder)
    assert [store.write(simulated_spec(token="t0")) for _ in range(2)] == [True, False]
    assert folder.writes == 1
    assert store.write(simulated_spec(token="t0", grant=granted(60)))
    assert len(folder.contents) == 1


def test_a_spec_that_somebody_emptied_is_written_anew() -> None:
    """What counts is the file, not what was written once: a crash of the machine may leave it empty."""
    folder = FailingFolder()
    store = store_in(folder)
    store.write(simulated_spec(token="t0"))
    folder.contents[store.file_of("t0")] = b""
    assert store.write(simulated_spec(token="t0"))
    assert folder.contents[store.file_of("t0")] == encode_spec(simulated_spec(token="t0"))


def test_the_unfinished_file_lies_in_the_folder_and_is_no_spec(tmp_path: Path) -> None:
    """Runtimes act on a name that leaves the watched folder, and read every .json and .yaml in it."""
    seen: list[str] = []

    class Watching(RealFolder):
        def rename(self, file: str, to: str) -> None:
            seen.extend([file, to])
            assert (tmp_path / file).is_file()
            super().rename(file, to)

    store_in(Watching(tmp_path)).write(simulated_spec(token="t0"))
    unfinished, finished = seen
    assert Path(unfinished).suffix not in {".json", ".yaml"}
    assert Path(finished).suffix == ".json"


@pytest.mark.parametrize("operation", ["read", "write", "rename"])
@pytest.mark.parametrize(("number", "advice"), [(FULL, "make room"), (READ_ONLY, "writable"), (errno.EIO, "readable")])
def test_a_failing_folder_gives_a_named_error_and_keeps_the_old_spec(operation: str, number: int, advice: str) -> None:
    """The old content stays as it was, no half file is left, and the next write succeeds."""
    folder = FailingFolder()
    store = store_in(folder)
    store.write(simulated_spec(token="t0"))
    before = dict(folder.contents)
    folder.fails = {operation: number}
    with pytest.raises(SpecFolderError, match=advice) as caught:
        store.write(simulated_spec(token="t0", grant=granted(60)))
    assert (caught.value.where, caught.value.fault) == ("/run/cdi", "cluster")
    assert folder.contents == before
    folder.fails = {}
    assert store.write(simulated_spec(token="t0", grant=granted(60)))


def test_a_folder_that_is_a_file_is_a_named_error(tmp_path: Path) -> None:
    """The real file system's own complaint is passed on."""
    (tmp_path / "cdi").write_text("")
    with pytest.raises(SpecFolderError, match="Not a directory"):
        store_in(RealFolder(tmp_path / "cdi")).write(simulated_spec(token="t0"))


def test_removing_says_whether_there_was_something(tmp_path: Path) -> None:
    """Removing twice is no error: a pod may be collected by two ways."""
    store = store_in(RealFolder(tmp_path))
    store.write(simulated_spec(token="t0"))
    (stored,) = store.listed()
    assert [store.remove_file(stored.file) for _ in range(2)] == [True, False]


def test_an_empty_or_missing_folder_lists_nothing(tmp_path: Path) -> None:
    """So it is after a reboot."""
    assert store_in(RealFolder(tmp_path / "missing")).listed() == []


@pytest.mark.parametrize("file", ["nvidia.yaml", "../x", "aliquot.dev-slice_/../nvidia.yaml", ""])
def test_files_of_others_are_never_removed(file: str) -> None:
    """Whatever name comes in, only our own files can go."""
    folder = FailingFolder()
    folder.contents["nvidia.yaml"] = b"theirs"
    with pytest.raises(SpecFolderError, match="not one of ours"):
        store_in(folder).remove_file(file)
    assert "nvidia.yaml" in folder.contents


def test_collecting_removes_what_no_living_pod_owns() -> None:
    """Gone pods' specs, garbled and unfinished files go; living pods' and other vendors' stay."""
    folder = FailingFolder()
    store = store_in(folder)
    store.write(simulated_spec(token="living"))
    store.write(simulated_spec(token="gone", owner=msgspec.structs.replace(OWNER, pod_uid="gone")))
    folder.contents |= {
        store.file_of("garbled"): b"{",
        store.file_of("cut").removesuffix(".json") + ".unfinished": b"{",
        "nvidia.yaml": b"theirs",
        "garbled.json": b"{",
    }
    removed = store.collect(living_pods={OWNER.pod_uid})
    assert sorted(folder.contents) == sorted([store.file_of("living"), "nvidia.yaml", "garbled.json"])
    assert [stored.owner.pod_uid for stored in removed if stored.owner] == ["gone"]
    assert sorted(stored.problem.split(":")[0] for stored in removed) == ["", "left unfinished", "not readable"]


def test_a_file_that_can_not_be_removed_is_kept_for_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    """Collecting goes on and says so in the log."""
    folder = FailingFolder()
    store = store_in(folder)
    store.write(simulated_spec(token="gone"))
    folder.fails = {"remove": READ_ONLY}
    assert store.collect(living_pods=set()) == []
    assert "can't be removed" in caplog.text
    folder.fails = {}
    assert len(store.collect(living_pods=set())) == 1


def test_a_spec_under_a_strange_name_or_of_a_strange_kind_is_reported() -> None:
    """Both would stand in the way of the file that belongs there."""
    folder = FailingFolder()
    store = store_in(folder)
    copied = encode_spec(simulated_spec(token="t0"))
    folder.contents[store.file_of("other")] = copied
    folder.contents[store.file_of("t0")] = copied.replace(b"aliquot.dev/slice", b"aliquot.dev/other")
    assert [stored.problem for stored in store.listed()] == ["does not hold the device that its name says"] * 2


def test_a_spec_without_owner_is_reported() -> None:
    """Nobody could ever collect it otherwise."""
    folder = FailingFolder()
    store = store_in(folder)
    spec = simulated_spec(token="t0")
    store.write(msgspec.structs.replace(spec, annotations={}))
    assert [stored.problem for stored in store.listed()] == ["does not say whose it is"]


def test_an_unreadable_file_of_ours_does_not_hide_the_others(tmp_path: Path) -> None:
    """It is listed with its problem: here a folder under one of our names."""
    store = store_in(RealFolder(tmp_path))
    store.write(simulated_spec(token="t0"))
    (tmp_path / store.file_of("strange")).mkdir()
    problems = sorted(stored.problem for stored in store.listed())
    assert problems == ["", "Is a directory"]


def test_two_installations_share_a_folder(tmp_path: Path) -> None:
    """Each sees and collects only its own."""
    ours, theirs = (SpecStore(names=names, folder=RealFolder(tmp_path)) for names in (NAMES, Names(domain="b.example")))
    ours.write(simulated_spec(token="t0"))
    assert theirs.listed() == theirs.collect(living_pods=set()) == []
    assert len(ours.listed()) == 1


@given(
    st.binary(max_size=300) | st.builds(lambda cut: encode_spec(simulated_spec(token="t0"))[:cut], st.integers(0, 900))
)
def test_whatever_lies_in_our_file_is_listed(content: bytes) -> None:
    """Listing never fails for what a file holds: it has an owner or a problem."""
    folder = FailingFolder()
    store = store_in(folder)
    folder.contents[store.file_of("t0")] = content
    (stored,) = store.listed()
    assert (stored.owner is None) == bool(stored.problem)


def test_readers_see_the_old_spec_or_the_new_one(tmp_path: Path) -> None:
    """An open file keeps its content while a new one takes its name."""
    store = store_in(RealFolder(tmp_path))
    store.write(simulated_spec(token="t0"))
    with (tmp_path / store.file_of("t0")).open("rb") as reader:
        store.write(simulated_spec(token="t0", grant=granted(60)))
        old = decode_spec(reader.read(), where="old")
    assert old == simulated_spec(token="t0")
    assert [path.name for path in tmp_path.iterdir()] == [store.file_of("t0")]
