"""Files of traces, packed or not, and a replay that a signal ends in an orderly way."""

from __future__ import annotations

import contextlib
import gzip
import io
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from aliquot_scheduler.simulating.reading import READABLE, TraceError

# Ctrl-C, and what a batch system or a container's end sends.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GZIP = b"\x1f\x8b"
_PICTURE = ".svg"

_Read = TypeVar("_Read")


class Stop:
    """Whether a signal has asked the run to end."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        """Asked between two pods, so that what is counted is whole."""
        return bool(self.signal)

    @property
    def code(self) -> int:
        """The exit code that a shell gives to such an end."""
        return 128 + self.signal


@contextlib.contextmanager
def told_to_stop() -> Iterator[Stop]:
    """A first signal asks the run to end; a second one does not wait for that."""
    told = Stop()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}

    def stop(number: int, _: FrameType | None) -> None:
        if told():
            signal.signal(number, before[number])
            signal.raise_signal(number)
        told.signal = number

    for number in before:
        signal.signal(number, stop)
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def place_to_draw(_: click.Context, __: click.Parameter, place: str | None) -> str | None:
    """Whether a picture can lie there, asked before a run of minutes and not after it."""
    if place and not (folder := Path(place).absolute().parent).is_dir():
        raise click.BadParameter(f"there is no folder {folder}")
    if place and (kind := Path(place).suffix) and kind.casefold() != _PICTURE:
        raise click.BadParameter(f"curves are drawn as SVG, not as {kind[1:]}; name it {Path(place).stem}{_PICTURE}")
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
