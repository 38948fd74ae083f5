"""The node's processes, as the kernel tells of them: the agent sees those of all containers."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

# Words of /proc/PID/stat behind the name: its state, how many threads it has, and when it started.
_STATE, _THREADS, _STARTED = 0, 17, 19
_ENDED = (b"Z", b"X")
_IN_EACH_NAMESPACE = b"NSpid:"


class NodeProcesses:
    """The real ones."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def born(self, pid: int) -> int:
        """When it started, in the kernel's ticks; 0 if there is none."""
        return _started(self._words(pid))

    def signal(self, pid: int, *, born: int, number: signal.Signals) -> None:
        """Signal that very process, by a descriptor: a number may be another process's between two looks."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            try:
                if self.born(pid) == born:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def living(self, born: Collection[int]) -> set[tuple[int, int]]:
        """Start and number of each process that started then, in each pid namespace in which it is one.

        Takes some 20 ms with a thousand processes.
        """
        found = set[tuple[int, int]]()
        for folder in self._proc.glob("[0-9]*"):
            words = self._words(int(folder.name))
            if (started := _started(words)) in born and not _has_ended(words):
                found |= {(started, pid) for pid in self._numbers(folder)}
        return found

    def _words(self, pid: int) -> list[bytes]:
        try:
            return (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return []

    def _numbers(self, folder: Path) -> Iterator[int]:
        """Of the node first, and last of the innermost namespace."""
        with suppress(OSError):  # it ended between two looks
            for line in (folder / "status").read_bytes().splitlines():
                if line.startswith(_IN_EACH_NAMESPACE):
                    yield from (int(word) for word in line.split()[1:])


def _started(words: list[bytes]) -> int:
    try:
        return int(words[_STARTED])
    except (ValueError, IndexError):
        return 0


def _has_ended(words: list[bytes]) -> bool:
    """Only waited for; a first thread that has ended stays so while others of its process run on."""
    return words[_STATE] in _ENDED and int(words[_THREADS]) <= 1
