"""Files of traces, packed or not, and a replay that Ctrl-C ends in an orderly way."""

from __future__ import annotations

import contextlib
import gzip
import io
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import TypeVar

import click

from aliquot_scheduler.simulating.reading import READABLE, TraceError

# What the shell says of a command that was ended by Ctrl-C.
INTERRUPTED = 130
_GZIP = b"\x1f\x8b"

_Read = TypeVar("_Read")


@contextlib.contextmanager
def told_to_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C ends the run between two pods, so that what is counted is whole."""
    told: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        told.append(number)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGINT, before)


def place_to_draw(_: click.Context, __: click.Parameter, place: str | None) -> str | None:
    """Whether a picture can lie there, asked before a run of minutes and not after it."""
    if place and not (folder := Path(place).absolute().parent).is_dir():
        raise click.BadParameter(f"there is no folder {folder}")
    return place


def write_picture(place: str, picture: str) -> None:
    """Write it; what came of the run is told before."""
    try:
        Path(place).write_text(picture, encoding="utf-8")
    except OSError as error:
        failed = f"can't be written: {error.strerror or error}"
        raise TraceError(failed, where=place, remedy="choose another place") from None


def read_trace(path: str, reader: Callable[[Iterable[str]], _Read]) -> _Read:
    """The file through a reader of lines; compressed or not is seen from its first bytes."""
    try:
        with Path(path).open("rb") as raw:
            packed = raw.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
            content = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(content, encoding="utf-8", newline="") as lines:
                return reader(lines)
    except OSError as error:
        raise TraceError(f"can't be read: {error.strerror or error}", where=path, remedy=READABLE) from None
