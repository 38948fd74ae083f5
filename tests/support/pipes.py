"""Named pipes by which a test and a process wait for each other, without sleeping and without blocking the loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path


class Pipe:
    """One named pipe, for one direction. Held open on both ends, so that neither side's opening ever waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._end = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def __str__(self) -> str:
        return str(self.path)

    async def heard(self) -> None:
        """Wait until the process has written to the pipe (`echo >pipe`)."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._end, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._end)
        os.read(self._end, 4096)

    def tell(self) -> None:
        """Let the process read a line from the pipe (`read x <pipe`)."""
        os.write(self._end, b"x\n")

    def close(self) -> None:
        """Let go."""
        os.close(self._end)
