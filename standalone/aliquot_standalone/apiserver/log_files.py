"""Logs from the files that a node's part writes: `<namespace>_<pod>_<uid>/<container>/<start>.log`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .logs import LogsMissingError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path
    from typing import BinaryIO

    from aliquot_core.clock import Clock

    from .logs import LogWish

_PIECE = 64 * 1024
# What ends or speaks soon is seen at once (`aliquot run -- true` would wait a tenth of a second for nothing), later by
# no more than an eighth of its silence, and what is long silent is looked at as often as a person can tell.
_LOOK_SOON, _LOOK_EVERY, _PART_OF_SILENCE = 0.005, 0.1, 8


class LogFiles:
    """Reads and follows log files; a slow reader holds up nobody, and a flood is passed on piece by piece."""

    def __init__(
        self,
        *,
        folder_of: Callable[[str], Path | None],
        ended: Callable[[LogWish], bool],
        clock: Clock,
        waits: Callable[[LogWish], str] = lambda _: "",
    ) -> None:
        """`folder_of` gives a node's folder of logs; `ended` tells that a container prints nothing more.

        `waits` says for what a container waits that has not begun.
        """
        self._waits = waits
        self._folder_of = folder_of
        self._ended = ended
        self._clock = clock

    async def read(self, wish: LogWish) -> AsyncGenerator[bytes]:
        """Give what was printed, piece by piece; when it is followed, until the container has ended."""
        path = self._file(wish)
        left = wish.limit
        with path.open("rb", buffering=0) as file:
            file.seek(wish.since)
            _skip_to_tail(file, wish.tail)
            silent = 0.0
            while True:
                # Asked before reading: what is printed last is read after the end was seen.
                over = not wish.follow or self._ended(wish)
                while piece := _next(file, _PIECE if left is None else min(left, _PIECE)):
                    left = None if left is None else left - len(piece)
                    silent = 0.0
                    yield piece
                if over or left == 0:
                    return
                pause = min(max(_LOOK_SOON, silent / _PART_OF_SILENCE), _LOOK_EVERY)
                await self._clock.sleep(pause)
                silent += pause

    def _file(self, wish: LogWish) -> Path:
        folder = self._folder_of(wish.node) if wish.node else None
        if folder is None:
            raise LogsMissingError(f"pod {wish.pod} does not have a host assigned")
        place = folder / f"{wish.namespace}_{wish.pod}_{wish.uid}" / wish.container
        starts = sorted(int(path.stem) for path in place.glob("*.log") if path.stem.isdecimal())
        wanted = starts[:-1] if wish.previous else starts
        if not wanted:
            which = "previous terminated container" if wish.previous else "container"
            nothing = f'{which} "{wish.container}" in pod "{wish.pod}" has printed nothing yet'
            why = "" if wish.previous else self._waits(wish)
            raise LogsMissingError(f"{nothing}: {why}" if why else nothing)
        return place / f"{wanted[-1]}.log"


def _next(file: BinaryIO, most: int) -> bytes:
    """Give the next piece; a log that grew too large has lost its beginning, also under those who read it."""
    position = file.tell()
    if position > os.fstat(file.fileno()).st_size:
        position = 0
    file.seek(_data_from(file, position))
    return file.read(most)


def _data_from(file: BinaryIO, position: int) -> int:
    """Where the next data lie: what was let go is a hole."""
    try:
        return os.lseek(file.fileno(), position, os.SEEK_DATA)
    except OSError:
        return position  # nothing follows, or the file system does not know


def _skip_to_tail(file: BinaryIO, lines: int | None) -> None:
    """Stand where the last so many lines begin; only newlines end a line, for progress bars are full of returns."""
    if lines is None:
        return
    first, position = _data_from(file, 0), file.seek(0, 2)
    found, left = b"", lines + 1
    while position > first and lines:
        step = min(_PIECE, position - first)
        position -= step
        file.seek(position)
        piece = file.read(step)
        # The newline at the very end of the file ends the last line and begins none.
        at = len(piece) if found else len(piece.removesuffix(b"\n"))
        left -= 0 if found else 1
        while left and (at := piece.rfind(b"\n", 0, at)) >= 0:
            left -= 1
        if not left:
            file.seek(position + at + 1)
            return
        found = piece
    file.seek(*((first, 0) if lines else (0, 2)))
