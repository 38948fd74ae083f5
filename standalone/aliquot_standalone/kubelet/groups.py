"""A cgroup of its own for each container, where this machine lets us make some.

Theory of operation. A process may leave its session and clear its environment, and is then nobody's by any mark; its
cgroup it keeps, as long as it may not write to others. Where cgroup v2 is mounted and groups can be made below our own,
a node has a folder there, and each start of a container a group in it, which the container's leader joins before it
runs the command. `cgroup.kill` ends all of a group at once, whatever it forks meanwhile. Where the folder is gets
written down, since the next `aliquot up` may be in another group itself. The agent too knows processes by it: their
pod's UID is in the name.

Limits of CPU and memory are written to a container's group where those controllers are handed down to it: by cgroup v2
a group that has processes hands none to others, so this needs a group above that is empty, or the root.

What must always hold: nothing depends on groups but that strays without a mark are found, and limits where they can be
held; none is removed but empty.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from aliquot_standalone.kubelet.bounds import CONTROLLERS

log = logging.getLogger(__name__)

_PROCS, _KILL, _HANDED = "cgroup.procs", "cgroup.kill", "cgroup.subtree_control"
_EVENTS = "memory.events"
_TRY_WITHIN = 10.0


class Groups:
    """The groups of one node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, container: str, *, bounds: Mapping[str, str]) -> Path:
        """The group of a start that is to come, with its limits; its leader joins by writing 0 to `cgroup.procs`."""
        group = self._of(container)
        if not self.folder.exists():
            # Somebody tidies up what is empty.
            self.folder.mkdir(parents=True, exist_ok=True)
            _hand_down(self.folder)
        group.mkdir(exist_ok=True)
        for name, value in bounds.items():
            _bind(group / name, value, container=container)
        return group

    def members(self, container: str) -> list[int]:
        """All processes of a container, also in groups that they made themselves."""
        return _members(self._of(container))

    def has_process_of(self, uid: str) -> bool:
        """Whether anything of a pod lives."""
        return any(_members(group) for group in self.folder.glob(f"pod{uid}.*"))

    def everybody(self) -> list[int]:
        """All processes of all containers of the node."""
        return _members(self.folder)

    def ran_out_of_memory(self, container: str) -> bool:
        """Whether the kernel killed something of a container for want of memory."""
        try:
            events = (self._of(container) / _EVENTS).read_text().split()
        except OSError:
            return False  # nobody holds its memory
        return dict(zip(events[::2], events[1::2], strict=False)).get("oom_kill", "0") != "0"

    def kill(self, container: str) -> None:
        """Kill all of them at once."""
        with contextlib.suppress(FileNotFoundError):
            (self._of(container) / _KILL).write_text("1")

    def remove(self, container: str) -> None:
        """Remove a container's group; it must be empty."""
        _remove(self._of(container))

    def close(self) -> None:
        """Remove what is empty; the next `aliquot up` makes a folder anew."""
        _remove(self.folder)

    def _of(self, container: str) -> Path:
        # Without the mark of the place, which the folder bears already: pod, container, start.
        return self.folder / f"pod{container.partition('.')[2]}"


def groups_at(record: Path, *, name: str) -> Groups | None:
    """The groups of a node: those of the last time if they are still there, else new ones; None where there are none.

    `record` is the file in which is written where they are.
    """
    if known := recorded_groups(record):
        return known
    own = own_group()
    if own is None:
        log.info("no cgroups for containers: cgroup v2 is not mounted")
        return None
    folder = own / f"aliquot-{name}"
    try:
        # Written down before it is made: who is killed in between leaves none that nobody knows of.
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(str(folder))
        folder.mkdir(exist_ok=True)
        _hand_down(folder)
        if _can_be_joined(folder):
            return Groups(folder)
        why = "they can't be joined, or not be killed as a whole"
    except OSError as error:
        why = str(error)
    _remove(folder)
    log.info("no cgroups for containers", extra={"folder": str(folder), "why": why})
    return None


def own_group(proc: Path = Path("/proc/self")) -> Path | None:
    """Where this process's own group is in the file system."""
    for line in (proc / "mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, mount = fields.split()[3:5]
            break
    else:
        return None
    groups = (proc / "cgroup").read_text().splitlines()
    path = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    return None if path is None else Path(mount) / path.removeprefix(root.rstrip("/")).lstrip("/")


def recorded_groups(record: Path) -> Groups | None:
    """Those that an `aliquot up` before has left, if they are still there."""
    try:
        folder = Path(record.read_text())
    except (OSError, ValueError):
        return None
    # After a reboot there is none, and the file lies.
    return Groups(folder) if folder.is_absolute() and (folder / _KILL).exists() else None


def _hand_down(folder: Path) -> None:
    """Have limits held below, as far as the groups above allow it."""
    for group in (folder.parent, folder):
        for controller in CONTROLLERS:
            with contextlib.suppress(OSError):  # it is not there, or the group has processes of its own
                _write(group / _HANDED, f"+{controller}")


def _bind(file: Path, value: str, *, container: str) -> None:
    """Limits that can't be held keep nothing from running: a node of one machine is no cluster's."""
    try:
        _write(file, value)
    except OSError as error:
        about = {"container": container, "limit": file.name, "why": str(error)}
        log.info("a limit is not held: its controller is not handed down to this group", extra=about)


def _write(file: Path, text: str) -> None:
    """To a file that the kernel has made: none is made by us."""
    with file.open("r+") as there:
        there.write(text)


def _can_be_joined(folder: Path) -> bool:
    """Tried with a process: who may write what there depends on where both groups are."""
    if not os.access(folder / _KILL, os.W_OK):
        return False
    trial = folder / "trial"
    trial.mkdir(exist_ok=True)
    joining = ["/bin/sh", "-c", f'echo 0 >"$1/{_PROCS}"', "sh", str(trial)]
    try:
        return not subprocess.run(joining, stderr=subprocess.DEVNULL, check=False, timeout=_TRY_WITHIN).returncode
    except subprocess.TimeoutExpired:
        return False
    finally:
        _remove(trial)


def _members(group: Path) -> list[int]:
    found: list[int] = []
    for folder, _, files in os.walk(group):
        if _PROCS in files:
            with contextlib.suppress(OSError):  # it was removed between two looks
                # One of another PID namespace reads as 0, and to signal that would be to signal ourselves.
                found += filter(None, map(int, (Path(folder) / _PROCS).read_text().split()))
    return found


def _remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):  # somebody is in it, or it is gone
            Path(folder).rmdir()
