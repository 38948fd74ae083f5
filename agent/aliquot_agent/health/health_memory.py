"""What events said of GPUs, kept in a file over a restart of the agent: an upgrade must not make a sick GPU well.

The file lies where a reboot removes it, for a reboot resets the GPUs. It is a cache: without it, or with one that can't
be read, what was wrong is found out when it happens again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

import msgspec

from aliquot_agent.gpus.model import EventKind
from aliquot_agent.health.ailments import Book
from aliquot_agent.health.judging import told
from aliquot_agent.health.xids import Policy
from aliquot_agent.whole_file import read_file, replace_file

log = logging.getLogger(__name__)


class Remembered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that an event said; it is judged anew when it is read, for the table may have changed."""

    uuid: str
    event: EventKind
    number: int | None
    since: float
    last: float


# 16 GPUs, each with all of the 30 XIDs that are remembered at most, take 60 kB.
_LARGEST = 256 * 1024
_decoder = msgspec.json.Decoder(tuple[Remembered, ...])


def memory(book: Book) -> tuple[Remembered, ...]:
    """What is to be remembered of the book."""
    return tuple(
        Remembered(uuid=uuid, event=one.event, number=one.number, since=one.since, last=one.last)
        for uuid, ailments in sorted(book.ailments.items())
        for _, one in sorted(ailments.items())
        if one.event is not None
    )


def recalled(book: Book, remembered: tuple[Remembered, ...], *, policy: Policy) -> Book:
    """Write into the book what was remembered."""
    for one in remembered:
        book = told(book, one.uuid, one.event, one.number, since=one.since, last=one.last, policy=policy)
    return book


class HealthMemory(Protocol):
    """Where it is kept."""

    def load(self) -> tuple[Remembered, ...]:
        """What was kept last, by whoever; nothing if it can't be read."""
        ...

    def save(self, remembered: tuple[Remembered, ...]) -> None:
        """Keep this instead; what can't be kept is said in the log."""
        ...


class HealthFile:
    """In a file, whole or not at all."""

    def __init__(self, path: str) -> None:
        """An empty path keeps nothing."""
        self._path = Path(path) if path else None

    def load(self) -> tuple[Remembered, ...]:
        """What was kept last; nothing if it can't be read."""
        if self._path is None:
            return ()
        try:
            return _decoder.decode(read_file(self._path, most=_LARGEST))
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError, UnicodeError) as error:
            log.warning("earlier XIDs can't be read", extra={"file": str(self._path), "error": str(error)})
            return ()

    def save(self, remembered: tuple[Remembered, ...]) -> None:
        """Keep this instead."""
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, msgspec.json.encode(remembered))
        except OSError as error:
            log.warning("XIDs can't be kept", extra={"file": str(self._path), "error": str(error)})
