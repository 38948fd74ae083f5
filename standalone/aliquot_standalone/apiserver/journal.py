"""The server's memory on disk: one file to which each change is appended before it is in force.

Theory of operation. A record is a line: a checksum, then JSON of the change. A change is written (not synced) before
the store takes it, so what a client was told survives the death of the process; a power cut may cost what was written
since the last `sync`. When dead records outweigh live ones, a new file with only the newest revisions replaces the old
one at once, by renaming. What always holds:
 - a write that does not get onto the disk whole is taken back and refused: memory never knows more than the file;
 - recovery gives the state after the last whole record, says what it left out, and keeps that in a file of its own;
 - versions go on far behind the last one, so that a version which a client was told and the disk has lost is never
   given to another state;
 - one process at a time: the folder is locked.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from aliquot_core.errors import NotAdmittedError

from .failures import ApiError, internal_because
from .journal_lines import UnknownJournalError, change_line, first_line, payload_of, restore, version_at_head, whole
from .store import Store

if TYPE_CHECKING:
    from .store import Change

_log = logging.getLogger(__name__)
# Beyond what one second of writes can lose.
_LEAP = 1_000_000
# Below, a file is not worth rewriting.
_SMALL = 8 * 1024 * 1024
Write = Callable[[int, memoryview], int]


class StateInUseError(NotAdmittedError):
    """Another process uses this folder."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on the disk."""

    objects: int = 0
    records: int = 0
    # How many bytes behind the last good record were cut off, where they are kept, and how many whole records are
    # there: none where a write was broken off, some where the file was damaged.
    cut: int = 0
    kept_in: str = ""
    lost: int = 0
    # The file was there without a single byte: what it had is gone, if it ever had anything.
    emptied: bool = False


class Journal:
    """One folder's journal, locked by this process."""

    def __init__(self, folder: Path, *, write: Write = os.write, small: int = _SMALL) -> None:
        """Raises `StateInUseError` where another process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._path = folder / "journal"
        self._write = write
        self._small = small
        self._lock = _locked(folder / "lock")
        self._file = -1
        # Up to here the file is whole; and how long it was when it held nothing dead.
        self._end = 0
        self._live = 0
        # Whether something that is no whole record may follow.
        self._torn = False
        # How many writes were refused so far, and why the latest one was; empty if it went well.
        self.refused = 0
        self.trouble = ""

    def recover(self, store: Store) -> Recovery:
        """Bring a new store to the state on the disk, and write its changes here from now on."""
        recovery = self._read(store)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.lseek(self._file, self._end, os.SEEK_SET)
        # Whoever died in the middle of it left half a file.
        self._fresh.unlink(missing_ok=True)
        if self._end == 0:
            self._append(first_line(store.version))
        store.begin(version=store.version + _LEAP if recovery.records else store.version, journal=self.note)
        return recovery

    def note(self, table: str, change: Change) -> None:
        """Put a change on the disk; raises, with nothing changed, where it does not fit."""
        self._append(change_line(table, change))

    def sync(self) -> None:
        """Have the disk really hold what was written; may block for as long as the disk takes."""
        os.fsync(self._file)

    @property
    def wants_compaction(self) -> bool:
        """Whether more than half of the file is dead."""
        return self._end > self._small and self._end > 2 * self._live

    def compact(self, store: Store) -> None:
        """Replace the file by one that holds only what is alive; if that fails, the old one stays."""
        try:
            fresh = os.open(self._fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                size = self._write_all(fresh, whole(store))
                os.fsync(fresh)
                self._fresh.replace(self._path)
                _sync_folder(self._folder)
            except OSError:
                os.close(fresh)
                raise
        except OSError as error:
            self._fresh.unlink(missing_ok=True)
            _log.warning("the journal could not be compacted", extra={"error": str(error)})
            # Not again before it has grown as much once more.
            self._live = self._end
            return
        _log.info("the journal was compacted", extra={"before": self._end, "after": size})
        os.close(self._file)
        self._file, self._end, self._live = fresh, size, size

    def close(self) -> None:
        """Sync, and let the folder go."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
        os.close(self._lock)

    @property
    def _fresh(self) -> Path:
        return self._path.with_name("journal.new")

    def _append(self, line: bytes) -> None:
        try:
            if self._torn:
                self._take_back()
            self._torn = True
            self._write_all(self._file, (line,))
        except OSError as error:
            # Where even that fails, the next write tries again, and recovery cuts it off.
            with suppress(OSError):
                self._take_back()
            self.refused += 1
            self.trouble = os.strerror(error.errno or 0)
            raise _refused(self.trouble) from error
        self._torn = False
        self.trouble = ""
        self._end += len(line)

    def _take_back(self) -> None:
        """Half a record may be there: the next one must not follow it."""
        os.ftruncate(self._file, self._end)
        os.lseek(self._file, self._end, os.SEEK_SET)
        self._torn = False

    def _write_all(self, file: int, lines: Iterable[bytes]) -> int:
        size = 0
        for line in lines:
            left = memoryview(line)
            while left:
                left = left[self._write(file, left) :]
            size += len(line)
        return size

    def _read(self, store: Store) -> Recovery:
        if not self._path.exists():
            return Recovery()
        if not self._path.is_file():
            raise self._unknown()
        if self._path.stat().st_size == 0:
            _log.warning("the journal is empty: whatever it had is lost", extra={"path": str(self._path)})
            return Recovery(emptied=True)
        records = 0
        with self._path.open("rb") as file:
            head = payload_of(file.readline())
            if head is None:
                raise self._unknown()
            store.restore_version(version_at_head(head, where=str(self._path)))
            self._end = file.tell()
            for line in file:
                payload = payload_of(line)
                if payload is None:
                    break
                restore(store, payload)
                self._end += len(line)
                records += 1
        return self._cut(Recovery(objects=store.count(), records=records))

    def _unknown(self) -> UnknownJournalError:
        return UnknownJournalError(
            "this is no journal of ours", where=str(self._path), remedy="move it away, or name another folder"
        )

    def _cut(self, recovery: Recovery) -> Recovery:
        """Keep what is behind the last whole record for a person to look at, and take it off."""
        with self._path.open("r+b") as file:
            file.seek(self._end)
            rest = file.read()
            if not rest:
                return recovery
            kept = self._path.with_name(f"journal.cut-at-{self._end}")
            # As private as the journal itself: it may hold secrets.
            kept.touch(mode=0o600)
            kept.write_bytes(rest)
            file.truncate(self._end)
        lost = sum(payload_of(line) is not None for line in BytesIO(rest).readlines()[1:])
        what = "is damaged, and what follows is set aside" if lost else "ends in the middle of a record"
        extra = {"bytes": len(rest), "whole_records": lost, "kept_in": str(kept)}
        _log.warning("the journal %s; what is before it is all there", what, extra=extra)
        return msgspec.structs.replace(recovery, cut=len(rest), kept_in=str(kept), lost=lost)


def _sync_folder(folder: Path) -> None:
    """Have the disk hold the new name too."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StateInUseError(
            f"another process (pid {holder}) uses this state", where=str(path.parent), remedy="end that one first"
        ) from error
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def _refused(why: str) -> ApiError:
    return internal_because(f"the change could not be written to disk and was not made: {why}")
