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
