"""The journal: what was told to a client is still there after the process died, and nothing else is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aliquot_standalone.apiserver.failures import ApiError
from aliquot_standalone.apiserver.journal import Journal, Recovery, StateInUseError, Write
from aliquot_standalone.apiserver.journal_lines import UnknownJournalError
from aliquot_standalone.apiserver.store import Store

State = dict[tuple[str, str], tuple[int, bytes]]


@contextmanager
def opened(folder: Path, *, write: Write = os.write, small: int = 1 << 20) -> Iterator[tuple[Store, Journal, Recovery]]:
    """A store as this folder has it."""
    store, journal = Store(), Journal(folder, write=write, small=small)
    recovery = journal.recover(store)
    yield store, journal, recovery
    journal.close()


def state_of(store: Store) -> State:
    """All that a store holds."""
    return {(table, one.key): (one.version, one.raw) for table, one in store.everything()}


def put(store: Store, name: str, text: str = "", *, table: str = "things") -> None:
    """Write an object."""
    obj = {"metadata": {"name": name, "labels": {"text": text}}, "text": text}
    store.put(table, name, obj, fields={"metadata.name": name})


def remove(store: Store, name: str, *, table: str = "things") -> None:
    """Delete an object."""
    found = store.get(table, name)
    assert found is not None
    store.remove(table, name, found.decode(), fields=found.fields)


Steps = st.lists(st.tuples(st.sampled_from("abc"), st.text(max_size=5), st.booleans()), max_size=25)


def carry_out(store: Store, steps: list[tuple[str, str, bool]]) -> None:
    """Write and delete."""
    for name, text, gone in steps:
        if not gone:
            put(store, name, text)
        elif store.get("things", name):
            remove(store, name)


@given(steps=Steps, compacting=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_comes_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, bool]], *, compacting: bool
) -> None:
    """Objects with their versions, labels and fields; and versions never go back."""
    folder = tmp_path_factory.mktemp("state")
    with opened(folder) as (store, journal, _):
        carry_out(store, steps)
        if compacting:
            journal.compact(store)
        put(store, "last")
        before, version = state_of(store), store.version
    with opened(folder) as (store, _, recovery):
        assert state_of(store) == before
        assert store.version > version
        assert (recovery.objects, recovery.cut) == (len(before), 0)
        found = store.get("things", "last")
        assert found is not None
        assert (found.fields, found.labels) == ({"metadata.name": "last"}, {"text": ""})


def test_a_file_cut_anywhere_gives_the_last_whole_record(tmp_path: Path) -> None:
    """For each length that the file may have been left at: the state before the record that was cut, and it is said."""
    states: dict[int, State] = {}
    with opened(tmp_path / "whole") as (store, _, _):
        path = tmp_path / "whole" / "journal"
        states[path.stat().st_size] = {}
        for act in (partial(put, store, "a", "1"), partial(put, store, "b", "ü\n"), partial(remove, store, "a")):
            act()
            states[path.stat().st_size] = state_of(store)
    data = path.read_bytes()
    first = min(states)
    for length in range(first, len(data) + 1):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / "journal").write_bytes(data[:length])
        whole = max(size for size in states if size <= length)
        with opened(folder) as (store, _, recovery):
            assert state_of(store) == states[whole]
            assert (recovery.cut, recovery.lost) == (length - whole, 0)
            put(store, "new")
        if recovery.cut:
            assert Path(recovery.kept_in).read_bytes() == data[whole:length]
            assert Path(recovery.kept_in).stat().st_mode & 0o777 == 0o600, "nobody else may read it, nor the rest"
        with opened(folder) as (store, _, recovery):
            assert recovery.cut == 0
            assert store.get("things", "new")


def test_a_record_that_was_changed_ends_what_is_believed(tmp_path: Path) -> None:
    """A flipped bit is no record; what follows is kept aside."""
    with opened(tmp_path) as (store, _, _):
        put(store, "a")
        size = (tmp_path / "journal").stat().st_size
        put(store, "b")
        put(store, "c")
    data = bytearray((tmp_path / "journal").read_bytes())
    data[size + 20] ^= 1
    (tmp_path / "journal").write_bytes(data)
    with opened(tmp_path) as (store, _, recovery):
        assert set(state_of(store)) == {("things", "a")}
        assert (recovery.cut, recovery.lost) == (len(data) - size, 1)


def test_an_emptied_file_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    """A crash can leave it without a byte: nothing is there, as on a fresh machine, but it is said; writes go on."""
    with opened(tmp_path) as (store, _, recovery):
        assert not recovery.emptied, "it is the first time"
        put(store, "a")
    os.truncate(tmp_path / "journal", 0)
    with opened(tmp_path) as (store, _, recovery):
        assert (recovery.emptied, recovery.objects, recovery.cut) == (True, 0, 0)
        put(store, "b")
    with opened(tmp_path) as (store, _, recovery):
        assert not recovery.emptied
        assert set(state_of(store)) == {("things", "b")}


def test_a_folder_in_the_journal_s_place_is_no_journal(tmp_path: Path) -> None:
    """It is named, and what to do."""
    (tmp_path / "journal").mkdir()
    with pytest.raises(UnknownJournalError, match=r"no journal of ours.*move it away"), opened(tmp_path):
        pass


class Disk:
    """A disk with so much room left."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, file: int, data: memoryview) -> int:
        """Write what fits; where nothing does, say so."""
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(file, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("room", [0, 1, 30, 70])
def test_a_full_disk_refuses_and_changes_nothing(tmp_path: Path, room: int) -> None:
    """Memory never knows more than the file; with room again, writes go on."""
    disk = Disk(10_000)
    with opened(tmp_path, write=disk.write) as (store, journal, _):
        put(store, "a", "1")
        before, version = state_of(store), store.version
        size = (tmp_path / "journal").stat().st_size
        disk.room = room
        for act in (partial(put, store, "a", "2" * 40), partial(put, store, "b" * 60)):
            with pytest.raises(ApiError, match="No space left on device"):
                act()
            assert (state_of(store), store.version) == (before, version)
            assert (tmp_path / "journal").stat().st_size == size
        assert (journal.refused, journal.trouble) == (2, "No space left on device")
        disk.room = 10_000
        put(store, "c")
        assert (journal.refused, journal.trouble) == (2, "")
        after = state_of(store)
    with opened(tmp_path) as (store, _, recovery):
        assert (state_of(store), recovery.cut) == (after, 0)


def test_a_full_disk_does_not_harm_by_compaction(tmp_path: Path) -> None:
    """The old file stays until the new one is whole."""
    disk = Disk(10_000)
    with opened(tmp_path, write=disk.write) as (store, journal, _):
        put(store, "a")
        disk.room = 60
        journal.compact(store)
        disk.room = 10_000
        put(store, "b")
        after = state_of(store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal", "lock"]
    with opened(tmp_path) as (store, _, _):
        assert state_of(store) == after


def test_the_file_is_kept_short(tmp_path: Path) -> None:
    """It is compacted once more than half of it is dead, and not before."""
    with opened(tmp_path, small=1000) as (store, journal, _):
        compacted = 0
        for number in range(200):
            put(store, "a", str(number))
            if journal.wants_compaction:
                journal.compact(store)
                compacted += 1
        assert 5 < compacted < 40
    assert (tmp_path / "journal").stat().st_size < 1500


_HOLDER = """
import sys, pathlib
from aliquot_standalone.apiserver.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_used_by_one_process(tmp_path: Path) -> None:
    """A second one is refused by name; when the first is killed, its lock is gone with it."""
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StateInUseError, match=str(holder.pid)):
            Journal(tmp_path)
        holder.kill()
    with opened(tmp_path) as (store, _, _):
        put(store, "a")
        assert store.count() == 1


def _garbage() -> bytes:
    return b"something else\n"


def _future() -> bytes:
    payload = b'{"form":99,"version":0}'
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


@pytest.mark.parametrize("content", [_garbage, _future])
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, content: Callable[[], bytes]) -> None:
    """It may be somebody's; nothing is written to it."""
    (tmp_path / "journal").write_bytes(content())
    journal = Journal(tmp_path)
    with pytest.raises(UnknownJournalError):
        journal.recover(Store())
    journal.close()
    assert (tmp_path / "journal").read_bytes() == content()
