"""The node's processes, as the kernel tells of them: the agent sees those of all containers."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from aliquot_agent.isolation.departed import Life

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

    def living(self, born: Collection[int]) -> set[Life]:
        """The processes that started then; takes some 20 ms with a thousand processes."""
        found = set[Life]()
        for folder in self._proc.glob("[0-9]*"):
            words = self._words(int(folder.name))
            if (started := _started(words)) in born and not _has_ended(words) and (pid := _own_number(folder)):
                found.add(Life(born=started, pid=pid, namespace=_own_namespace(folder)))
        return found

    def _words(self, pid: int) -> list[bytes]:
        try:
            return (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return []


def _own_number(folder: Path) -> int:
    """The number by which it knows itself, the last of those that it has; 0 if it ended between two looks."""
    with suppress(OSError):
        for line in (folder / "status").read_bytes().splitlines():
            if line.startswith(_IN_EACH_NAMESPACE):
                return int(line.split()[-1])
    return 0


def _own_namespace(folder: Path) -> int:
    """The inode of its pid namespace, as far as an agent without CAP_SYS_PTRACE is told of it."""
    try:
        return (folder / "ns" / "pid").stat().st_ino
    except OSError:
        return 0


def _started(words: list[bytes]) -> int:
    try:
        return int(words[_STARTED])
    except (ValueError, IndexError):
        return 0


def _has_ended(words: list[bytes]) -> bool:
    """Only waited for; a first thread that has ended stays so while others of its process run on."""
    return words[_STATE] in _ENDED and int(words[_THREADS]) <= 1
