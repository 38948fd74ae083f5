"""Which processes are whose: whether any of a pod still lives, and in which container one lives that uses a GPU.

The first is asked of pods whose object is gone while their containers may not be. After a forced deletion neither the
API server nor PodResources knows the pod any more, and the kubelet's record keeps pods that ended long ago. The
processes themselves tell: their cgroup names the pod's UID (underscores for dashes under systemd), and where the
kubelet makes no cgroups for pods, the mounts do that it gives each container.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from aliquot_agent.pods.dwellings import Dwelling, by_mounts, dwellings

# A container's mounts take some 10 kB; a file that is longer is cut, not trusted less.
_LONGEST = 1024 * 1024


class Residents(Protocol):
    """Who lives on the node."""

    def alive(self, uids: Collection[str]) -> set[str]:
        """Those of these pods that have a living process."""
        ...


class Register(Protocol):
    """Who lives where."""

    def dwellings(self, pids: Collection[int]) -> dict[int, tuple[Dwelling, ...]]:
        """Which containers these processes live in; nothing of one that ended or can't be looked at."""
        ...


class ProcResidents:
    """Looks through /proc; the agent must see the host's processes there."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def alive(self, uids: Collection[str]) -> set[str]:
        """Those of these pods that have a living process; takes some 20 ms with a thousand processes."""
        missing = set(uids)
        found: set[str] = set()
        for folder in self._proc.glob("[0-9]*"):
            if not missing:
                break
            cgroup, mounts = _text(f"{folder}/cgroup"), _text(f"{folder}/mountinfo")
            found |= {uid for uid in missing if _in_cgroup(cgroup, uid) or _in_container(mounts, uid)}
            missing -= found
        return found

    def dwellings(self, pids: Collection[int]) -> dict[int, tuple[Dwelling, ...]]:
        """Which containers these processes live in; some 0.05 ms a process."""
        found = {}
        for pid in pids:
            folder = f"{self._proc}/{pid}"
            if cgroup := _text(f"{folder}/cgroup"):
                found[pid] = dwellings(cgroup=cgroup) or dwellings(cgroup="", mounts=_text(f"{folder}/mountinfo"))
        return found


def _in_cgroup(text: str, uid: str) -> bool:
    return f"pod{uid}" in text or f"pod{uid.replace('-', '_')}" in text


def _in_container(text: str, uid: str) -> bool:
    return f"/pods/{uid}/" in text and any(one.pod == uid for one in by_mounts(text))


def _text(path: str) -> str:
    """A process may end between two looks. Bare reads: a thousand files a sample are worth it."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - the same
            return file.readall()[:_LONGEST].decode(errors="replace")
    except OSError:
        return ""
