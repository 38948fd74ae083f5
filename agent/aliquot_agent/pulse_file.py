"""Whether a process that opens no port still turns: its loop touches a file, and a probe looks how old that is.

`python -P -m aliquot_agent.pulse_file FILE SECONDS` is the probe. It runs beside the process, within its memory, so it
imports next to nothing: 10 MiB and 20 ms, where a command of `aliquot` loads 40 MiB in 0.2 s.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from aliquot_core.clock import Clock

# Far below what a probe bears, and next to no work.
EVERY = 2.0
_MODE = 0o644


class PulseFile:
    """The side of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def beat(self) -> None:
        """Say that the loop turns; where that can't be said, whoever asks finds silence, and that is so."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError:
            return
        try:
            os.utime(descriptor)
        except OSError:
            return
        finally:
            os.close(descriptor)

    async def keep(self, *, clock: Clock) -> None:
        """Beat as long as the process's event loop turns."""
        while True:
            self.beat()
            await clock.sleep(EVERY)


def ailment(path: str, *, allowed: float, now: float) -> str:
    """Why the process of that file is not well; nothing if it is. By the clock of the wall, as files have it."""
    try:
        silent = now - os.stat(path).st_mtime  # noqa: PTH116 - pathlib takes as long to import as all of this
    except OSError as error:
        return f"nothing was heard of it: {error}"
    return f"its loop was not heard for {silent:.0f} s" if silent > allowed else ""


def main() -> None:
    """Answer a probe by the exit code."""
    path, allowed = sys.argv[1:]
    if said := ailment(path, allowed=float(allowed), now=time.time()):
        sys.exit(said)


if __name__ == "__main__":
    main()
