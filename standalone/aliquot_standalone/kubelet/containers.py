"""Containers as local processes: the shell's side of starting, watching, signalling and finding them again.

How it works. Each container is a session of its own, led by `/bin/sh`, which runs the command and then writes its exit
code to a file: so the code is known even to a kubelet that was started after the container, whose child it is not.
The leader survives SIGTERM to the group and passes the command's own end on. A pidfd tells when the leader is gone;
whatever else of the container is left then is killed: the members of its process group, those that left it but still
carry the container's mark in their environment, and where there are cgroups those that do not even carry that.

A process is known by number *and* time of birth, so a reused number is never signalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from aliquot_standalone.kubelet.births import birth
from aliquot_standalone.kubelet.errors import ProcessError
from aliquot_standalone.kubelet.groups import Groups
from aliquot_standalone.kubelet.lifecycle import Process

log = logging.getLogger(__name__)

MARK = "ALIQUOT_CONTAINER"
KILLED = 128 + signal.SIGKILL
_CLEAN_LOOKS = 2
_PAGE = 16 * 1024
# In dash and bash a trapped signal waits until the command has ended, and traps are not handed on to it. They come
# last: a signal between them and the command is lost on both, and before them it ends the leader, and all is over.
# The code is read when the leader is gone, so it needs no second file and no process to move it (2 ms of a short run).
_LEADER = (
    'code=$1; [ -z "$2" ] || echo 0 >"$2/cgroup.procs" || exit 126; cd "$3" || exit 126; shift 3; '
    'trap : TERM INT HUP QUIT; "$@"; echo $? >"$code"'
)


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start."""

    id: str
    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    log_file: Path
    exit_file: Path
    # What is written to which file of its cgroup, where it has one.
    bounds: Mapping[str, str] = {}


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    reason: str


class Runtime(Protocol):
    """Where containers run: processes here, something simulated in tests."""

    def start(self, launch: Launch) -> Process:
        """Start a process; a `ProcessError` says why that can't be."""
        ...

    def find(self, container: str) -> Process | None:
        """The leader of a container's processes, if it lives."""
        ...

    async def wait(self, process: Process, exit_file: Path) -> Ended:
        """Wait until the process has ended; at once if it is long gone."""
        ...

    def signal(self, process: Process, number: int) -> None:
        """Send a signal to all of the container's processes; none is no error."""
        ...


class LocalProcesses:
    """The runtime that starts real processes."""

    def __init__(self, *, groups: Groups | None = None) -> None:
        """`groups` are the node's cgroups, where there are some."""
        self._groups = groups

    def start(self, launch: Launch) -> Process:
        """Start a session whose leader runs the command."""
        path = launch.env.get("PATH", os.defpath)
        if shutil.which(launch.argv[0], path=path) is None and not (launch.folder / launch.argv[0]).is_file():
            raise ProcessError(f"there is no program {launch.argv[0]!r}", where=launch.id)
        try:
            group = str(self._groups.make(launch.id, bounds=launch.bounds)) if self._groups else ""
            argv = ["/bin/sh", "-c", _LEADER, "sh", str(launch.exit_file), group, str(launch.folder), *launch.argv]
            launch.log_file.parent.mkdir(parents=True, exist_ok=True)
            launch.folder.mkdir(parents=True, exist_ok=True)
            launch.exit_file.parent.mkdir(parents=True, exist_ok=True)
            launch.exit_file.unlink(missing_ok=True)
            pid = os.posix_spawn(
                "/bin/sh",
                argv,
                {**launch.env, MARK: launch.id},
                file_actions=_files(launch.log_file),
                setsid=True,
                # Python ignores SIGPIPE, and what is ignored stays so in children.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                setsigmask=[],
            )
        except OSError as error:
            raise ProcessError(f"can't start {launch.argv[0]!r}: {error}", where=launch.id) from error
        return Process(id=launch.id, pid=pid, born=birth(pid) or "")

    def find(self, container: str) -> Process | None:
        """Look for the eldest marked process that leads a group: others may have made groups of their own."""
        leaders = [(born, pid) for pid in marked(container) if _group(pid) == pid and (born := birth(pid))]
        if not leaders:
            return None
        born, pid = min(leaders, key=lambda leader: int(leader[0].rpartition(":")[2]))
        return Process(id=container, pid=pid, born=born)

    async def wait(self, process: Process, exit_file: Path) -> Ended:
        """Wait for the leader, then clear away what it left."""
        if birth(process.pid) == process.born:
            await _until_gone(process.pid)
        if _is_our_zombie(process.pid):
            # Until it is reaped, nobody else can have this number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # Its group, which tells, is cleared away with the rest.
        starved = self._groups is not None and self._groups.ran_out_of_memory(process.id)
        await self._clear_away(process.id)
        end = _ended(_reap(process.pid), exit_file)
        return Ended(end.code, "OOMKilled") if starved and end.code == KILLED else end

    def signal(self, process: Process, number: int) -> None:
        """Signal the group and those who left it."""
        if birth(process.pid) == process.born:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for stray in self._members(process.id):
            if _group(stray) != process.pid:
                _send(stray, number)

    def _members(self, container: str) -> set[int]:
        return {*marked(container), *(self._groups.members(container) if self._groups else ())}

    async def _clear_away(self, container: str) -> None:
        """Kill all that is left, and wait until it is gone.

        Two looks in a row must find none: a process that is just being replaced by another program shows no environment
        for some microseconds, and one may be forked between the look and the signal.
        """
        if self._groups:
            self._groups.kill(container)
        clean = 0
        while clean < _CLEAN_LOOKS:
            strays = self._members(container)
            clean = 0 if strays else clean + 1
            for stray in strays:
                _send(stray, signal.SIGKILL)
            await asyncio.gather(*(_until_gone(stray) for stray in strays))
        if self._groups:
            self._groups.remove(container)


def marked(container: str) -> list[int]:
    """All processes that carry a container's mark."""
    return _bearing(f"\0{MARK}={container}\0".encode())


def marked_at(place: str) -> list[int]:
    """All processes that carry the mark of any container of a place."""
    return _bearing(f"\0{MARK}={place}.".encode())


def _bearing(mark: bytes) -> list[int]:
    with os.scandir("/proc") as entries:
        pids = [entry.name for entry in entries if entry.name.isdigit()]
    return [int(pid) for pid in pids if mark in b"\0" + _environment(pid)]


def _environment(pid: str) -> bytes:
    """A process's environment; nothing if it is gone or not ours. Plain calls: each container's end reads them all."""
    try:
        descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(descriptor, _PAGE), b""))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _files(log_file: Path) -> list[tuple[int, int, str, int, int] | tuple[int, int, int]]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log_file), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _reap(pid: int) -> int | None:
    """The exit status of a child of ours; None for somebody else's."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if reaped == pid else None


def _is_our_zombie(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _ended(status: int | None, exit_file: Path) -> Ended:
    """The code that the leader wrote; if it was killed itself, its own status, if that is known."""
    try:
        code = int(exit_file.read_text())
    except (FileNotFoundError, ValueError):
        if status is None:
            return Ended(KILLED, "ContainerStatusUnknown")
        code = status if status >= 0 else 128 - status
    return Ended(code, "Completed" if code == 0 else "Error")


async def _until_gone(pid: int) -> None:
    """Wait until a process has ended, a child or not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
